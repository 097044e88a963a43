"""A folder of images from its files to the splits of a run, and all that can be wrong with one."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.pictures import CLASSES, fill, picture, read
from tests.data.test_decode import bomb
from uiat.data import DataConfig, Loader, load
from uiat.data import packed as packed_set
from uiat.data.decode import pixels
from uiat.data.packed import Manifest
from uiat.errors import UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path / "mine")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def packed(store: Path) -> list[Path]:
    return sorted((store / "packed").iterdir()) if (store / "packed").exists() else []


def refused(folder: Path, store: Path, **changes: object) -> str:
    """Return the one sentence, and see that nothing is left in the cache."""
    with pytest.raises(UserError) as caught:
        read(folder, store, **changes)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert packed(store) == []
    return sentence


def test_every_image_comes_once_with_its_class(folder: Path, store: Path) -> None:
    splits = read(folder, store)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [22, 2, 6]
    assert splits.spec.shape == (3, 48, 64)
    assert splits.test.y.bincount().tolist() == [2, 2, 2]
    files = [json.loads(line) for line in (packed(store)[0] / "files.jsonl").read_text().splitlines()]
    assert sorted(files) == sorted(str(p.relative_to(folder)) for p in folder.rglob("*.*"))
    x = torch.cat([splits.train.x, splits.validation.x, splits.test.x])
    y = torch.cat([splits.train.y, splits.validation.y, splits.test.y])
    for k, place in enumerate(files):
        expected = np.asarray(Image.open(folder / place).convert("RGB")).transpose(2, 0, 1)
        assert np.array_equal(x[k].numpy(), expected)
        assert splits.train.classes[y[k]] == place.split(os.sep)[0]


def test_the_second_time_nothing_is_decoded(folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read(folder, store)
    monkeypatch.setattr("uiat.data.packing.pixels", None)
    after = read(folder, store)
    assert torch.equal(before.train.x, after.train.x)
    assert len(packed(store)) == 1


def test_the_pixels_stay_on_the_disk(folder: Path, store: Path) -> None:
    splits = read(folder, store)
    base = splits.train.x.untyped_storage().data_ptr()
    assert splits.validation.x.untyped_storage().data_ptr() == base
    assert splits.test.x.untyped_storage().data_ptr() == base
    splits.train.x[0] = 7  # a program's own copy of the page
    assert not torch.equal(splits.train.x[0], read(folder, store).train.x[0])


def test_a_changed_folder_is_packed_anew(folder: Path, store: Path) -> None:
    read(folder, store)
    (old,) = packed(store)
    picture(0, 99).save(folder / "blue" / "more.png")
    splits = read(folder, store)
    assert sum(map(len, (splits.train, splits.validation, splits.test))) == 31
    (new,) = packed(store)
    assert new != old
    os.utime(folder / "blue" / "more.png", ns=(1, 1))
    read(folder, store)
    assert packed(store) != [new]


def test_other_options_have_a_cache_of_their_own(folder: Path, store: Path) -> None:
    assert read(folder, store, size=(16, 24)).spec.shape == (3, 16, 24)
    assert read(folder, store, size=12).spec.shape == (3, 12, 12)
    assert len(read(folder, store, test_fraction=0.5).test) == 15
    assert len(packed(store)) == 3
    assert read(folder, store, size=(16, 24)).spec.shape == (3, 16, 24)
    assert len(packed(store)) == 3


def test_a_damaged_cache_is_made_anew(folder: Path, store: Path) -> None:
    before = read(folder, store).test.x.clone()
    (cache,) = packed(store)
    for damage in ("images.npy", "labels.npy", "manifest.json"):
        content = (cache / damage).read_bytes()
        (cache / damage).write_bytes(content[: len(content) // 2])
        assert torch.equal(read(folder, store).test.x, before)


def test_an_interrupt_leaves_nothing(folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def interrupted(file: IO[bytes], size: tuple[int, int], grey: bool) -> object:
        seen.append(size)
        if len(seen) == 9:
            raise KeyboardInterrupt
        return pixels(file, size, grey)

    with monkeypatch.context() as patch:
        patch.setattr("uiat.data.packing.pixels", interrupted)
        with pytest.raises(KeyboardInterrupt):
            read(folder, store)
    assert packed(store) == []
    assert len(read(folder, store).test) == 6


def test_what_a_killed_process_left_is_removed(folder: Path, store: Path) -> None:
    left = store / "packed" / ".packing-left"
    left.mkdir(parents=True)
    (left / "images.npy").write_bytes(b"half")
    read(folder, store)
    assert not left.exists()
    assert len(packed(store)) == 1


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])
def test_a_process_that_is_killed_while_packing(end: str, folder: Path, store: Path) -> None:
    code = (
        "import os, signal, sys; from uiat.data import DataConfig, load, packing\n"
        "real, seen = packing.pixels, []\n"
        "def killed(*args):\n"
        "    seen.append(args)\n"
        f"    return real(*args) if len(seen) < 9 else os.kill(os.getpid(), signal.{end})\n"
        "packing.pixels = killed\n"
        f"load(DataConfig(name={str(folder)!r}), {str(store)!r})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == -getattr(signal, end)
    (left,) = packed(store)
    assert left.name.startswith(".packing-")
    assert len(read(folder, store).test) == 6
    (whole,) = packed(store)
    assert whole.name.startswith("mine-")


def test_a_full_disk_is_one_sentence(folder: Path, store: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        assert "cannot write the packed images to" in refused(folder, store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, before)
    assert len(read(folder, store).test) == 6


def test_a_data_set_larger_than_what_is_read_of_it(tmp_path: Path) -> None:
    """A sparse pack of 1.2 GB trains on its first batches with a few megabytes of memory."""
    folder, count = tmp_path / "large", 400_000
    facts = Manifest("", "", {}, ["a", "b"], [3, 32, 32], count - 2048, 1024, 1024, False, False, [])
    packed_set.write(folder, facts, [], (k % 2 for k in range(count)), [])
    with (folder / "images.npy").open("r+b") as file:
        file.truncate(128 + count * 3 * 32 * 32)
    before = resident()
    splits = load(DataConfig(name=str(folder)))
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [count - 2048, 1024, 1024]
    loader = Loader(splits.train, 128, seed=0, crop=4, flip=True)
    for step, batch in loader.epoch(1):
        assert not batch.x.any()
        if step == 5:
            break
    assert resident() - before < 150e6


def resident() -> float:
    """Return the bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_store_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "packed").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write the packed images to .*--data-dir"):
        read(folder, store)


def test_subset_and_validation_as_for_any_data(folder: Path, store: Path) -> None:
    splits = read(folder, store, validation=6, test_subset=3)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [18, 6, 3]
    assert splits.validation.y.bincount().tolist() == [2, 2, 2]
    splits = read(folder, store, subset=12)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [11, 1, 6]


@pytest.mark.parametrize("names", [("train", "val", "test"), ("Training", "validation", "TEST")])
def test_splits_by_folder(names: tuple[str, str, str], tmp_path: Path, store: Path) -> None:
    for name, count in zip(names, (4, 2, 3), strict=True):
        fill(tmp_path / "mine" / name, dict.fromkeys(CLASSES, count))
    splits = read(tmp_path / "mine", store)
    assert [part.y.bincount().tolist() for part in (splits.train, splits.validation, splits.test)] == [
        [4] * 3,
        [2] * 3,
        [3] * 3,
    ]
    assert [len(part) for part in (read(tmp_path / "mine", store, subset=6).train, splits.validation)] == [6, 6]
    with pytest.raises(UserError, match="has a validation split of its own: leave it out"):
        read(tmp_path / "mine", store, validation=3)


def test_a_test_folder_alone_leaves_validation_to_be_drawn(tmp_path: Path, store: Path) -> None:
    fill(tmp_path / "mine" / "train")
    fill(tmp_path / "mine" / "test", {"blue": 2, "red": 2})
    splits = read(tmp_path / "mine", store)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [27, 3, 4]
    assert splits.test.y.tolist() == [0, 0, 2, 2]
    assert splits.test.classes == CLASSES


def test_a_class_that_the_test_split_lacks_is_named(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "mine" / "train")
    fill(tmp_path / "mine" / "test", {"blue": 2, "red": 2})
    (tmp_path / "mine" / "test" / "green").mkdir()
    read(tmp_path / "mine", store)
    assert "the test split has no images of green: accuracies say nothing of them" in capsys.readouterr().err


def test_grey_images_have_one_channel(tmp_path: Path, store: Path) -> None:
    for k in range(20):
        at = tmp_path / "mine" / "ab"[k % 2]
        at.mkdir(parents=True, exist_ok=True)
        picture(k, k, (10, 9)).convert("L").save(at / f"{k}.png")
    assert read(tmp_path / "mine", store).spec.shape == (1, 9, 10)
    picture(0, 0, (10, 9)).save(tmp_path / "mine" / "a" / "colour.png")
    assert read(tmp_path / "mine", store).spec.shape == (3, 9, 10)


def test_mixed_modes_in_one_folder(folder: Path, store: Path) -> None:
    at = folder / "red"
    image = picture(2, 7)
    image.convert("L").save(at / "grey.png")
    image.quantize(16).save(at / "palette.png")
    image.convert("RGBA").save(at / "rgba.png")
    image.convert("CMYK").save(at / "cmyk.jpg")
    Image.fromarray(np.full((48, 64), 40_000, np.uint16)).save(at / "sixteen.png")
    splits = read(folder, store)
    assert splits.spec.shape == (3, 48, 64)
    assert sum(map(len, (splits.train, splits.validation, splits.test))) == 35


def test_the_size_that_most_images_have(folder: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture(0, 0, (100, 20)).save(folder / "blue" / "wide.png")
    assert read(folder, store).spec.shape == (3, 48, 64)
    said = " ".join(capsys.readouterr().err.split())
    assert "have 2 sizes; all are resized to 48×64 (height×width), which 30 of 31 have; --data.size" in said


def test_hidden_files_and_strangers(folder: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "blue" / "._000.jpg").write_bytes(b"not an image")
    (folder / "blue" / "Thumbs.db").write_bytes(b"x")
    (folder / "__MACOSX").mkdir()
    (folder / ".git" / "objects").mkdir(parents=True)
    (folder / "README.txt").write_text("notes")
    (folder / "red" / "labels.csv").write_text("a,b")
    splits = read(folder, store)
    assert splits.train.classes == CLASSES
    err = capsys.readouterr().err
    assert "left out, as they are no images in a class folder: README.txt, red/labels.csv" in err
    assert "Thumbs" not in err


def test_images_in_folders_below_a_class(folder: Path, store: Path) -> None:
    deep = folder / "blue" / "2024" / "may"
    deep.mkdir(parents=True)
    picture(0, 50).save(deep / "a.PNG")
    splits = read(folder, store)
    assert sum(map(len, (splits.train, splits.validation, splits.test))) == 31


def test_links_to_files_and_folders_are_followed(folder: Path, store: Path, tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere", {"yellow": 10})
    (folder / "yellow").symlink_to(tmp_path / "elsewhere" / "yellow")
    (folder / "blue" / "linked.png").symlink_to(tmp_path / "elsewhere" / "yellow" / "001.png")
    splits = read(folder, store)
    assert splits.train.classes == (*CLASSES, "yellow")
    assert sum(map(len, (splits.train, splits.validation, splits.test))) == 41


def test_a_folder_and_a_link_to_it_share_the_cache(folder: Path, store: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    read(folder, store)
    read(tmp_path / "link", store)
    assert len(packed(store)) == 1


# What is wrong, in one sentence.


def test_a_corrupt_image_is_named(folder: Path, store: Path) -> None:
    (folder / "green" / "000.jpg").write_bytes(b"no image at all")
    content = (folder / "red" / "001.png").read_bytes()
    (folder / "red" / "001.png").write_bytes(content[: len(content) // 2])
    assert "green/000.jpg (it is no image of a known format): replace or remove" in refused(folder, store)
    (folder / "green" / "000.jpg").unlink()
    sentence = refused(folder, store)
    assert sentence.startswith(f"an image of {folder.resolve()} cannot be read: red/001.png (OSError: ")


def test_many_corrupt_images_are_counted(folder: Path, store: Path) -> None:
    for path in sorted(folder.rglob("*.png")):
        path.write_bytes(path.read_bytes()[:-200])
    sentence = refused(folder, store)
    assert sentence.startswith("15 images of ")
    assert "; and 12 more: replace or remove" in sentence


def test_a_bomb_is_named(folder: Path, store: Path) -> None:
    (folder / "green" / "000.jpg").write_bytes(bomb(60_000).getvalue())
    assert "green/000.jpg (it claims more than" in refused(folder, store)


def test_an_empty_class(folder: Path, store: Path) -> None:
    (folder / "yellow").mkdir()
    assert refused(folder, store) == f"the class folder {folder / 'yellow'} holds no images: fill it, or remove it."


def test_a_class_with_too_few_images(folder: Path, store: Path) -> None:
    shutil.rmtree(folder / "blue")
    fill(folder, {"blue": 1})
    (folder / "green").rename(folder / "z")
    outcome = refused(folder, store, test_fraction=0.9)
    assert "too few images in" in outcome
    assert "the class blue has" in outcome


def test_no_images_at_all(tmp_path: Path, store: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert "holds no images in sub-folders: make a sub-folder for each class" in refused(tmp_path / "mine", store)
    picture(0, 0).save(tmp_path / "mine" / "a.png")
    assert "holds no images in sub-folders" in refused(tmp_path / "mine", store)
    (tmp_path / "mine" / "empty").mkdir()
    assert "holds no images in sub-folders" in refused(tmp_path / "mine", store)


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
    sentence = refused(tmp_path / "mine", store)
    assert f"the class Red of {tmp_path / 'mine' / 'test'} is not in" in sentence
    assert "the training classes are blue, green, red" in sentence


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
    assert f"the split {tmp_path / 'mine' / 'val'} holds no images" in refused(tmp_path / "mine", store)


def test_a_class_may_be_called_test(tmp_path: Path, store: Path) -> None:
    fill(tmp_path / "mine", {"test": 10, "other": 10})
    assert read(tmp_path / "mine", store).train.classes == ("other", "test")


def test_links_that_make_no_sense(folder: Path, store: Path, tmp_path: Path) -> None:
    (folder / "blue" / "up").symlink_to(folder)
    sentence = refused(folder, store)
    assert "is a link to a folder that it lies in" in sentence
    (folder / "blue" / "up").unlink()
    (folder / "blue" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert "gone.png is a link to nothing" in refused(folder, store)
    (folder / "blue" / "gone.png").unlink()
    (folder / "blue" / "self.png").symlink_to(folder / "blue" / "self.png")
    assert "self.png is a link to nothing" in refused(folder, store)
    (folder / "blue" / "self.png").unlink()
    (folder / "twin").symlink_to(folder / "blue")
    assert "are one and the same folder" in refused(folder, store)
    (folder / "twin").unlink()
    os.mkfifo(folder / "blue" / "pipe.png")
    assert "pipe.png is no regular file" in refused(folder, store)


def test_sizes_and_fractions_out_of_range(folder: Path, store: Path) -> None:
    assert "cannot resize images to 4×64" in refused(folder, store, size=(4, 64))
    assert "cannot resize images to 5000×5000" in refused(folder, store, size=5000)
    assert "data.test_fraction is 1.5" in refused(folder, store, test_fraction=1.5)
    assert "data.test is given, but" in refused(folder, store, test="x.npz")


def test_images_too_large_to_take_as_they_are(tmp_path: Path, store: Path) -> None:
    for name in "ab":
        (tmp_path / "mine" / name).mkdir(parents=True)
        for k in range(5):
            Image.new("L", (2048, 1024), k).save(tmp_path / "mine" / name / f"{k}.png")
    sentence = refused(tmp_path / "mine", store)
    assert "1024×2048 pixels, more than 1024 a side: choose a size, such as --data.size 32 64." in sentence
    assert read(tmp_path / "mine", store, size=(32, 64)).spec.shape == (1, 32, 64)


def test_paths_that_are_no_data(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(UserError, match=r"a\.csv is no data that can be read: give a folder of images"):
        load(DataConfig(name=str(tmp_path / "a.csv")))
    with pytest.raises(UserError, match=r"there is no .*nowhere: give a folder of images"):
        load(DataConfig(name=str(tmp_path / "nowhere")))
