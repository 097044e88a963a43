"""SVHN, and its reader of MATLAB files compared with SciPy's."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.io import loadmat, savemat

from tests.support.data_files import pixels
from uiat.data import svhn
from uiat.data.files import reading
from uiat.data.svhn import read_matlab
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
    train, test = svhn.load_svhn(tmp_path, False)
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
        svhn.load_svhn(tmp_path, False)
    assert "train_32x32.mat" in str(caught.value)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("keep", [0, 3, 100, 128, 130, 200, 5000, -1])
def test_truncated(tmp_path: Path, packed: bool, keep: int) -> None:
    path = tmp_path / "test_32x32.mat"
    write(path, packed)
    write(tmp_path / "train_32x32.mat")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"test_32x32\.mat cannot be read"):
        svhn.load_svhn(tmp_path, False)


def test_garbage(tmp_path: Path) -> None:
    write(tmp_path / "test_32x32.mat")
    (tmp_path / "train_32x32.mat").write_bytes(pixels(1, 4096).tobytes())
    with pytest.raises(UserError, match=r"train_32x32\.mat cannot be read"):
        svhn.load_svhn(tmp_path, False)


def test_missing(tmp_path: Path) -> None:
    write(tmp_path / "train_32x32.mat")
    with pytest.raises(UserError, match=r"SVHN is not in .*: put train_32x32\.mat and test_32x32\.mat into"):
        svhn.load_svhn(tmp_path, False)


TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8", "i8", "u8"]


@settings(max_examples=40)
@given(
    st.sampled_from(TYPES),
    st.lists(st.integers(0, 5), min_size=2, max_size=4),
    st.booleans(),
    st.sampled_from(["X", "long_name_of_an_array"]),
)
def test_equals_scipy(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int], packed: bool, name: str
) -> None:
    path = tmp_path_factory.mktemp("mat") / "a.mat"
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    savemat(path, {"before": "text", name: values, "after": {"a": 1}}, do_compression=packed)
    read = read_matlab(path, (name,))[name]
    want = loadmat(path)[name]
    np.testing.assert_array_equal(read, want)
    assert read.shape == tuple(shape)
    assert read.dtype == values.dtype


def big_endian(values: NDArray[Any]) -> bytes:
    """Write a file of a big-endian machine by hand."""

    def element(kind: int, data: bytes) -> bytes:
        return struct.pack(">II", kind, len(data)) + data + bytes(-len(data) % 8)

    name = struct.pack(">HH4s", 1, 1, b"X")  # a small element: length 1, type 1
    shape = np.array(values.shape, ">i4").tobytes()
    parts = element(6, struct.pack(">II", 11, 0)) + element(5, shape) + name
    return (
        b"MATLAB 5.0 MAT-file".ljust(124)
        + b"\x01\x00MI"
        + element(14, parts + element(4, values.astype(">u2").tobytes("F")))
    )


def test_big_endian(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    values = np.arange(24).reshape(2, 3, 4) * 1000
    path.write_bytes(big_endian(values))
    np.testing.assert_array_equal(read_matlab(path, ("X",))["X"], values)
    np.testing.assert_array_equal(loadmat(path)["X"], values)


@pytest.mark.parametrize("value", ["text", np.array([1j, 2]), {"a": 1}, np.array([[1], ["a"]], object)])
def test_other_kinds_are_refused(tmp_path: Path, value: object) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {"X": value})
    with pytest.raises(ValueError, match="X is not an array of real numbers"):
        read_matlab(path, ("X",))


def test_absent_name(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {"y": np.arange(3)})
    with pytest.raises(KeyError):
        read_matlab(path, ("X", "y"))


def test_old_and_new_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {"X": np.arange(3)}, format="4")
    with pytest.raises(ValueError, match="version 5 to 7"):
        read_matlab(path, ("X",))
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(ValueError, match="version 5 to 7"):
        read_matlab(path, ("X",))


@pytest.mark.parametrize("packed", [True, False])
def test_any_byte_may_be_wrong(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {"X": np.arange(40, dtype=np.uint8).reshape(2, 20)}, do_compression=packed)
    whole = path.read_bytes()
    for at in range(124, len(whole)):
        for value in (0, 2, 15, 255):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                with reading(path, "a MATLAB file"):
                    read_matlab(path, ("X",))
            except UserError:
                continue  # anything but a changed pixel is one error message
