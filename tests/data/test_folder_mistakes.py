"""What can be wrong with a folder of images: one error message, and nothing left in the cache."""

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.data.test_decode import bomb
from tests.support.data_files import fill, picture, read, refused
from uiat.data import DataConfig, load_splits
from uiat.errors import UserError


def test_a_corrupt_image_is_named(folder: Path, store: Path) -> None:
    (folder / "green" / "000.jpg").write_bytes(b"no image at all")
    content = (folder / "red" / "001.png").read_bytes()
    (folder / "red" / "001.png").write_bytes(content[: len(content) // 2])
    assert "green/000.jpg (it is not an image of a known format): replace or remove" in refused(folder, store)
    (folder / "green" / "000.jpg").unlink()
    message = refused(folder, store)
    assert message.startswith(f"an image of {folder.resolve()} cannot be read: red/001.png (OSError: ")


def test_many_corrupt_images_are_counted(folder: Path, store: Path) -> None:
    for path in sorted(folder.rglob("*.png")):
        path.write_bytes(path.read_bytes()[:-200])
    message = refused(folder, store)
    assert message.startswith("15 images of ")
    assert " and 12 more: replace or remove" in message


def test_a_bomb_is_named(folder: Path, store: Path) -> None:
    (folder / "green" / "000.jpg").write_bytes(bomb(60_000).getvalue())
    assert "green/000.jpg (it has more than" in refused(folder, store)


def test_an_empty_class(folder: Path, store: Path) -> None:
    (folder / "yellow").mkdir()
    assert refused(folder, store) == f"the class folder {folder / 'yellow'} has no images: add some, or remove it."


def test_a_class_with_too_few_images(folder: Path, store: Path) -> None:
    shutil.rmtree(folder / "blue")
    fill(folder, {"blue": 1})
    (folder / "green").rename(folder / "z")
    outcome = refused(folder, store, test_fraction=0.9)
    assert "too few images in" in outcome
    assert "the class blue has" in outcome


def test_no_images_at_all(tmp_path: Path, store: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert "has no images in sub-folders: create a sub-folder for each class" in refused(tmp_path / "mine", store)
    picture(0, 0).save(tmp_path / "mine" / "a.png")
    assert "has no images in sub-folders" in refused(tmp_path / "mine", store)
    (tmp_path / "mine" / "empty").mkdir()
    assert "has no images in sub-folders" in refused(tmp_path / "mine", store)


def test_a_single_class(tmp_path: Path, store: Path) -> None:
    fill(tmp_path / "mine", {"only": 12})
    with pytest.raises(UserError, match="fewer than two classes"):
        read(tmp_path / "mine", store)


def test_classes_that_differ_only_by_case(folder: Path, store: Path) -> None:
    fill(folder, {"Blue": 3})
    assert "has two classes that differ only by case or accents, Blue and blue: rename" in refused(folder, store)
    shutil.rmtree(folder / "Blue")
    fill(folder, {"caf\u00e9": 3, "cafe\u0301": 3})
    assert "differ only by case or accents" in refused(folder, store)


def test_a_name_that_cannot_be_printed(folder: Path, store: Path) -> None:
    fill(folder, {"two\nlines": 3})
    assert "whose name 'two\\nlines' cannot be printed" in refused(folder, store)
    shutil.rmtree(folder / "two\nlines")
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff"))).mkdir()
    assert "cannot be printed" in refused(folder, store)


def test_a_test_class_that_training_lacks(tmp_path: Path, store: Path) -> None:
    fill(tmp_path / "mine" / "train")
    fill(tmp_path / "mine" / "test", {"blue": 2, "Red": 2})
    message = refused(tmp_path / "mine", store)
    assert f"the class Red of {tmp_path / 'mine' / 'test'} is not in" in message
    assert "the training classes are blue, green, red" in message


def test_splits_that_make_no_sense(tmp_path: Path, store: Path) -> None:
    fill(tmp_path / "mine" / "test")
    assert "has a split test but no train" in refused(tmp_path / "mine", store)
    fill(tmp_path / "mine" / "train")
    fill(tmp_path / "mine", {"stray": 2})
    assert "has the folder stray beside its splits test, train" in refused(tmp_path / "mine", store)
    shutil.rmtree(tmp_path / "mine" / "stray")
    fill(tmp_path / "mine" / "val")
    fill(tmp_path / "mine" / "valid")
    assert "two folders for one split, val and valid" in refused(tmp_path / "mine", store)
    shutil.rmtree(tmp_path / "mine" / "valid")
    for path in (tmp_path / "mine" / "val").rglob("*.*"):
        path.unlink()
    assert f"the split {tmp_path / 'mine' / 'val'} has no images" in refused(tmp_path / "mine", store)


def test_a_class_may_be_called_test(tmp_path: Path, store: Path) -> None:
    fill(tmp_path / "mine", {"test": 10, "other": 10})
    assert read(tmp_path / "mine", store).train.classes == ("other", "test")


def test_links_that_make_no_sense(folder: Path, store: Path, tmp_path: Path) -> None:
    (folder / "blue" / "up").symlink_to(folder)
    message = refused(folder, store)
    assert "is a link to a folder that contains it" in message
    (folder / "blue" / "up").unlink()
    (folder / "blue" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert "gone.png is a broken link" in refused(folder, store)
    (folder / "blue" / "gone.png").unlink()
    (folder / "blue" / "self.png").symlink_to(folder / "blue" / "self.png")
    assert "self.png is a broken link" in refused(folder, store)
    (folder / "blue" / "self.png").unlink()
    (folder / "twin").symlink_to(folder / "blue")
    assert "are the same folder" in refused(folder, store)
    (folder / "twin").unlink()
    os.mkfifo(folder / "blue" / "pipe.png")
    assert "pipe.png is not a regular file" in refused(folder, store)


def test_sizes_and_fractions_out_of_range(folder: Path, store: Path) -> None:
    assert "cannot resize images to 4×64" in refused(folder, store, size=(4, 64))
    assert "cannot resize images to 5000×5000" in refused(folder, store, size=5000)
    assert "test_fraction is 1.5" in refused(folder, store, test_fraction=1.5)
    assert "data.test is given, but" in refused(folder, store, test="x.npz")


def test_images_too_large_to_take_as_they_are(tmp_path: Path, store: Path) -> None:
    for name in "ab":
        (tmp_path / "mine" / name).mkdir(parents=True)
        for k in range(5):
            Image.new("L", (2048, 1024), k).save(tmp_path / "mine" / name / f"{k}.png")
    message = refused(tmp_path / "mine", store)
    assert "1024×2048 pixels, more than 1024 a side: choose a size, such as --data.size 32 64." in message
    assert read(tmp_path / "mine", store, size=(32, 64)).spec.shape == (1, 32, 64)


def test_paths_that_are_no_data(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(UserError, match=r"a\.csv has no supported data format: give a folder of images"):
        load_splits(DataConfig(name=str(tmp_path / "a.csv")))
    with pytest.raises(UserError, match=r"there is no .*nowhere: give a folder of images"):
        load_splits(DataConfig(name=str(tmp_path / "nowhere")))
