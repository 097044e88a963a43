"""A folder of images, from its files to the splits of a run."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.data_files import CLASSES, fill, packed, picture, read
from uiat.errors import UserError


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
    with pytest.raises(UserError, match="has a validation split: omit it"):
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
    assert "the test split has no images of green" in capsys.readouterr().err


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
    assert "have 2 sizes; all are resized to 48×64 (height×width), that of 30 of 31; --data.size" in said


def test_hidden_files_and_other_files(folder: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "not images in a class folder: README.txt, red/labels.csv" in err
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
