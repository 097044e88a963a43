"""SVHN's MATLAB files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from tests.data.formats import pixels
from uiat.data import svhn
from uiat.errors import UserError


def write(path: Path, packed: bool = False, **changes: object) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    x = pixels(12, 32, 32, 3)
    y = np.array([10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1], np.uint8)[:, None]
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"X": x.transpose(1, 2, 3, 0), "y": y} | changes
    savemat(path, {key: value for key, value in content.items() if value is not None}, do_compression=packed)
    return x


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("sub", ["", "svhn"])
def test_read(tmp_path: Path, sub: str, packed: bool) -> None:
    x = write(tmp_path / sub / "train_32x32.mat", packed)
    write(tmp_path / sub / "test_32x32.mat")
    train, test = svhn.load(tmp_path, False)
    assert torch.equal(train.x, torch.from_numpy(x).permute(0, 3, 1, 2))
    assert train.y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert train.classes == tuple("0123456789")
    assert train.x.is_contiguous()
    train.check("train")
    assert len(test) == 12


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"X": None}, "KeyError"),
        ({"y": None}, "KeyError"),
        ({"X": np.zeros((32, 32, 1, 12), np.uint8)}, "32×32×3×N"),
        ({"X": np.zeros((32, 32, 3, 12))}, "uint8"),
        ({"X": np.zeros((32, 32, 3), np.uint8)}, "32×32×3×N"),
        ({"X": "text"}, "not an array of real numbers"),
        ({"y": np.ones((11, 1), np.uint8)}, "12×1"),
        ({"y": np.ones((12, 1))}, "integers"),
        ({"y": np.zeros((12, 1), np.uint8)}, "label 0, outside 1…10"),
        ({"y": np.full((12, 1), 11, np.uint8)}, "label 11, outside 1…10"),
    ],
)
def test_wrong_content(tmp_path: Path, changes: dict[str, object], match: str) -> None:
    write(tmp_path / "train_32x32.mat", False, **changes)
    write(tmp_path / "test_32x32.mat")
    with pytest.raises(UserError, match=match) as caught:
        svhn.load(tmp_path, False)
    assert "train_32x32.mat" in str(caught.value)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("keep", [0, 3, 100, 128, 130, 200, 5000, -1])
def test_truncated(tmp_path: Path, packed: bool, keep: int) -> None:
    path = tmp_path / "test_32x32.mat"
    write(path, packed)
    write(tmp_path / "train_32x32.mat")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"test_32x32\.mat cannot be read"):
        svhn.load(tmp_path, False)


def test_garbage(tmp_path: Path) -> None:
    write(tmp_path / "test_32x32.mat")
    (tmp_path / "train_32x32.mat").write_bytes(pixels(1, 4096).tobytes())
    with pytest.raises(UserError, match=r"train_32x32\.mat cannot be read"):
        svhn.load(tmp_path, False)


def test_missing(tmp_path: Path) -> None:
    write(tmp_path / "train_32x32.mat")
    with pytest.raises(UserError, match=r"SVHN is not in .*: put train_32x32\.mat and test_32x32\.mat into"):
        svhn.load(tmp_path, False)
