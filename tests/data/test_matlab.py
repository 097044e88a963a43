"""The reader of MATLAB files, beside SciPy's."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.io import loadmat, savemat

from uiat.data.files import reading
from uiat.data.svhn import read_matlab
from uiat.errors import UserError

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
        for value in (0, 1, 2, 14, 15, 128, 255):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                with reading(path, "a MATLAB file"):
                    read_matlab(path, ("X",))
            except UserError:
                continue  # a flipped pixel does no harm, everything else is one sentence
