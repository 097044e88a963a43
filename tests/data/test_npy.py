"""Pairs of .npy files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data import formats
from uiat.data import DataConfig, load
from uiat.data.npy import find_labels, read
from uiat.errors import UserError

IMAGES, LABELS = formats.pixels(40, 9, 12, 3), np.arange(40) % 4


def save(folder: Path, images: str = "mine", labels: str = "mine-labels") -> Path:
    np.save(folder / f"{images}.npy", IMAGES)
    np.save(folder / f"{labels}.npy", LABELS)
    return folder / f"{images}.npy"


def test_a_pair_goes_to_the_splits(tmp_path: Path) -> None:
    splits = load(DataConfig(name=str(save(tmp_path)), test_fraction=0.25))
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [27, 3, 10]
    assert splits.spec.shape == (3, 9, 12)
    assert splits.train.classes == ("0", "1", "2", "3")


def test_pixels_and_labels_are_as_they_were(tmp_path: Path) -> None:
    images = read(save(tmp_path))
    assert np.array_equal(images.x.numpy(), IMAGES.transpose(0, 3, 1, 2))
    assert torch.equal(images.y, torch.from_numpy(LABELS))
    images.x[0] = 3  # the file stays as it is
    assert np.array_equal(np.load(tmp_path / "mine.npy"), IMAGES)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("a", "a-labels"),
        ("a", "a_labels"),
        ("x_train", "y_train"),
        ("train-images", "train-labels"),
        ("image", "label"),
        ("X", "y"),
    ],
)
def test_where_labels_are_looked_for(images: str, labels: str, tmp_path: Path) -> None:
    assert find_labels(save(tmp_path, images, labels)) == tmp_path / f"{labels}.npy"


def test_a_test_pair_and_names(tmp_path: Path) -> None:
    train, test = save(tmp_path, "x_train", "y_train"), save(tmp_path, "x_test", "y_test")
    (tmp_path / "classes.txt").write_text("a\nb\nc\nd\n")
    splits = load(DataConfig(name=str(train), test=str(test)))
    assert len(splits.test) == 40
    assert splits.test.classes == ("a", "b", "c", "d")


def test_mistakes(tmp_path: Path) -> None:
    path = save(tmp_path)
    (tmp_path / "classes.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match="has label 3, but the training data has 2 classes"):
        read(path)
    (tmp_path / "classes.txt").write_text("a\na\nb\nc\n")
    with pytest.raises(UserError, match="has two classes of the name 'a'"):
        load(DataConfig(name=str(path)))
    (tmp_path / "mine-labels.npy").unlink()
    with pytest.raises(UserError, match=r"mine\.npy has no labels beside it: save them as .*mine-labels\.npy"):
        read(path)
    np.save(tmp_path / "mine-labels.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(UserError, match=r"mine-labels\.npy cannot be read as an \.npy file"):
        read(path)
    with pytest.raises(UserError, match=r"there is no file .*none\.npy"):
        read(tmp_path / "none.npy")
