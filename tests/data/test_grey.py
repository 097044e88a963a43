"""Fashion-MNIST's idx files."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.data_files import fashion, idx, labels, pixels
from uiat.data import grey
from uiat.errors import UserError


def write(folder: Path, packed: bool, **changes: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in fashion().items():
        new = changes.get(name.replace("-", "_"), content)
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(new, mtime=0) if packed else new)


@pytest.fixture(autouse=True)
def _no_system_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grey, "_SYSTEM", tmp_path / "system")


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("sub", ["fashion-mnist", "FashionMNIST/raw", "", "../system"])
def test_read(tmp_path: Path, packed: bool, sub: str) -> None:
    write(tmp_path / "data" / sub if not sub.startswith("..") else tmp_path / "system", packed)
    train, test = grey.load_fashion(tmp_path / "data", False)
    assert torch.equal(train.x[:, 0], torch.from_numpy(pixels(20, 28, 28, seed=0)))
    assert torch.equal(test.x[:, 0], torch.from_numpy(pixels(20, 28, 28, seed=1)))
    assert train.y.tolist() == test.y.tolist() == labels(20, 10)
    assert len(train.classes) == 10
    assert train.classes[9] == "Ankle boot"
    train.check("train")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("train_images_idx3_ubyte", b"", "starts with"),
        ("train_images_idx3_ubyte", b"\x00\x00\x08\x01" + bytes(100), "starts with 00000801 instead of 00000803"),
        ("train_images_idx3_ubyte", b"\x00\x00\x0d\x03" + bytes(100), "starts with 00000d03"),
        ("train_images_idx3_ubyte", idx(pixels(20, 28, 28))[:-1], "cannot be read"),
        ("train_images_idx3_ubyte", idx(pixels(20, 28, 28))[:9], "cannot be read"),
        ("train_images_idx3_ubyte", idx(pixels(20, 28, 28)) + b"x", "cannot be read"),
        ("train_images_idx3_ubyte", b"\x00\x00\x08\x03" + b"\xff" * 12, "cannot be read"),
        ("train_images_idx3_ubyte", idx(pixels(20, 28, 27)), "N×28×28"),
        ("train_images_idx3_ubyte", idx(pixels(19, 28, 28)), "20 labels for the 19 images"),
        ("t10k_labels_idx1_ubyte", idx(pixels(20)), "outside 0…9"),
        ("t10k_labels_idx1_ubyte", idx(np.zeros(21, np.uint8)), "21 labels for the 20 images"),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_wrong_content(tmp_path: Path, packed: bool, name: str, content: bytes, match: str) -> None:
    write(tmp_path, packed, **{name: content})
    with pytest.raises(UserError, match=match) as caught:
        grey.load_fashion(tmp_path, False)
    assert name.split("_")[0] in str(caught.value)


def test_empty_set(tmp_path: Path) -> None:
    nothing = {"t10k_images_idx3_ubyte": idx(pixels(0, 28, 28)), "t10k_labels_idx1_ubyte": idx(pixels(0))}
    write(tmp_path, False, **nothing)
    with pytest.raises(UserError, match="t10k-images"):
        grey.load_fashion(tmp_path, False)


@pytest.mark.parametrize("damage", [b"", b"not gzip", gzip.compress(b"x" * 999, mtime=0)[:-9]])
def test_damaged_gz(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, True)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(damage)
    with pytest.raises(UserError, match=r"train-labels-idx1-ubyte\.gz cannot be read"):
        grey.load_fashion(tmp_path, False)


def test_flipped_bit_in_gz(tmp_path: Path) -> None:
    write(tmp_path, True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        grey.load_fashion(tmp_path, False)


def test_missing(tmp_path: Path) -> None:
    write(tmp_path, True)
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match=r"not in .*fashion-mnist: put train-images-idx3-ubyte\.gz, .* into"):
        grey.load_fashion(tmp_path, False)
