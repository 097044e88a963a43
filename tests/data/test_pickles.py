"""Hostile and odd pickles: refused by name, never executed."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.data.formats import array, dtype, pixels, python2
from uiat.data.cifar import unpickle
from uiat.errors import UserError


def load(tmp_path: Path, content: bytes) -> dict[str, object]:
    path = tmp_path / "batch"
    path.write_bytes(content)
    return unpickle(path)


def refused(tmp_path: Path, content: bytes, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        load(tmp_path, content)
    assert str(tmp_path / "batch") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_python2_pickle_is_read(tmp_path: Path) -> None:
    entry = {b"data": pixels(3, 3072), b"labels": [0, 1, 300], b"name": b"x" * 300}
    got = load(tmp_path, python2(entry))
    assert list(got) == ["data", "labels", "name"]
    np.testing.assert_array_equal(np.asarray(got["data"]), entry[b"data"])
    assert got["labels"] == [0, 1, 300]
    assert got["name"] == b"x" * 300


@pytest.mark.parametrize("protocol", [3, 4])
def test_pickle_of_todays_numpy_is_read(tmp_path: Path, protocol: int) -> None:
    data = pixels(3, 5)
    got = load(tmp_path, pickle.dumps({"data": data, "labels": [1, 2]}, protocol))
    np.testing.assert_array_equal(np.asarray(got["data"]), data)


def test_new_module_name_is_read(tmp_path: Path) -> None:
    got = load(tmp_path, b"\x80\x02}U\x01d" + array(b"abc", (3,), module=b"numpy._core") + b"s.")
    np.testing.assert_array_equal(np.asarray(got["d"]), [97, 98, 99])


class Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
def test_code_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    refused(tmp_path, pickle.dumps({"data": Harmful(mark)}, protocol), r"(posix|nt)\.system")
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "builtins\neval",
        "__builtin__\neval",
        "os\nsystem",
        "numpy\nload",
        "numpy\nfromfile",
        "numpy.core.multiarray\nscalar",
        "numpy.testing\nrunstring",
        "copyreg\n_reconstructor",
        "numpy\nndarray.tofile",
    ],
)
def test_other_globals_are_refused_by_name(tmp_path: Path, name: str) -> None:
    refused(tmp_path, f"c{name}\n(S'1'\ntR.".encode(), name.replace("\n", r"\."))


def test_dotted_name_of_protocol_4_is_refused(tmp_path: Path) -> None:
    stack_global = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    refused(tmp_path, stack_global, r"numpy\.ndarray\.tofile")


@pytest.mark.parametrize("code", [b"O8", b"V8", b"i8", b"f8", b"O", b"u1,O"])
def test_arrays_of_anything_but_bytes_are_refused(tmp_path: Path, code: bytes) -> None:
    element = dtype(code)
    refused(tmp_path, b"\x80\x02}U\x01d" + array(b"\0" * 8, (1,), element) + b"s.", "only bytes")


def test_state_cannot_change_the_byte_type(tmp_path: Path) -> None:
    hostile = dtype(tail=b"NNNK\x08K\x08K\x3f")  # item size 8 and every flag, object pointers included
    got = load(tmp_path, b"\x80\x02}U\x01d" + array(b"\1\2\3", (3,), hostile) + b"s.")
    assert np.asarray(got["d"]).dtype == np.dtype("u1") == np.dtype(np.uint8)
    assert np.dtype("u1").itemsize == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80",
        b"garbage",
        b"\x80\x02.",
        python2([1, 2]),
        python2({b"a": 1})[:-1],
        b"\x80\x02}U\x01d" + array(b"abc", (4,)) + b"s.",
        b"\x80\x02}U\x01d" + array(b"abc", (2**31 - 1,) * 4) + b"s.",
        b"\x80\x02cnumpy\nndarray\n(K\x05tR.",
        b"\x80\x02cnumpy\nndarray\n)\x81.",
        b"\x80\x02cnumpy\ndtype\n)R.",
        b"\x80\x02cnumpy\ndtype\nK\x05\x85R.",
        b"\x80\x02U\x03pidQ.",
        b"\x80\x63}.",
        b"\x80\x02}U\x02\xff\xfeK\x01s.",
    ],
)
def test_damage_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path, content, "batch")


def test_every_truncation_is_one_sentence(tmp_path: Path) -> None:
    content = python2({b"data": pixels(1, 12), b"labels": [1]})
    for end in range(len(content)):
        refused(tmp_path, content[:end], "batch")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing_here"):
        unpickle(tmp_path / "nothing_here")
