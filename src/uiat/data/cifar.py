"""CIFAR-10 and CIFAR-100 in either of their official layouts: binary (preferred) and pickled.

A pickle is a program. The names that the official files, pickles of Python 2, refer to are resolved to stand-ins that
do only what these files need; any other name is refused and never imported.
"""

import io
import os
import pickle
import pickletools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uiat.data import fetch
from uiat.data.files import check_labels, content_of, is_file, reading, to_images
from uiat.data.images import Images
from uiat.errors import UserError

Bytes = NDArray[np.uint8]
_PIXELS = 3 * 32 * 32


def _read_binary(path: Path, label_bytes: int, label: int = 0) -> tuple[Bytes, NDArray[np.integer]]:
    """Read records of labels and pixels; `label` selects one label (CIFAR-100 has the coarse, then the fine one)."""
    with reading(path, "a CIFAR binary file"):
        stored = np.frombuffer(content_of(path), np.uint8)
    record = label_bytes + _PIXELS
    if not stored.size or stored.size % record:
        raise UserError(
            f"{path} has {stored.size} bytes, not a whole number of {record}-byte records: "
            "it is truncated, replace it with an intact copy."
        )
    rows = stored.reshape(-1, record)
    return rows[:, label_bytes:], rows[:, label]


def _read_pickled(path: Path, label_key: str) -> tuple[Bytes, NDArray[np.integer]]:
    with reading(path, "a CIFAR batch"):
        entry = unpickle(path)
        images, labels = entry["data"], entry[label_key]
        count = len(labels)
        if not count or not isinstance(images, np.ndarray) or images.shape != (count, _PIXELS):
            raise ValueError(f"`data` must be {_PIXELS} bytes for each of the {count} labels")
        if not all(type(label) is int for label in labels):
            raise ValueError("labels must be integers")
        return images, np.array(labels, np.int64)


def _text_names(path: Path) -> list[str]:
    with reading(path, "a list of class names"):
        return content_of(path).decode("utf-8").split()


def _pickled_names(path: Path, key: str) -> list[str]:
    with reading(path, "a list of class names"):
        return [_text(name) for name in unpickle(path)[key]]


@dataclass(frozen=True)
class Layout:
    """The files of one data set in one layout, and how each is read."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    read: Callable[[Path], tuple[Bytes, NDArray[np.integer]]]
    """Read one file: images (N, 3072) and labels (N,)."""
    read_names: Callable[[Path], list[str]]

    def missing(self, at: Path) -> list[str]:
        """Return the files that are missing in a folder."""
        return [file for file in (*self.train, *self.test, self.names) if not is_file(at / file)]


def _layouts_of_100(labels: str, place: int) -> tuple[Layout, Layout]:
    """Return the layouts of CIFAR-100 with its fine or its coarse labels."""
    return (
        Layout(
            "cifar-100-binary",
            ("train.bin",),
            ("test.bin",),
            f"{labels}_label_names.txt",
            partial(_read_binary, label_bytes=2, label=place),
            _text_names,
        ),
        Layout(
            "cifar-100-python",
            ("train",),
            ("test",),
            "meta",
            partial(_read_pickled, label_key=f"{labels}_labels"),
            partial(_pickled_names, key=f"{labels}_label_names"),
        ),
    )


_BATCHES = tuple(f"data_batch_{k}" for k in range(1, 6))
_LAYOUTS = {
    "CIFAR-10": (
        Layout(
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _BATCHES),
            ("test_batch.bin",),
            "batches.meta.txt",
            partial(_read_binary, label_bytes=1),
            _text_names,
        ),
        Layout(
            "cifar-10-batches-py",
            _BATCHES,
            ("test_batch",),
            "batches.meta",
            partial(_read_pickled, label_key="labels"),
            partial(_pickled_names, key="label_names"),
        ),
    ),
    "CIFAR-100": _layouts_of_100("fine", 1),
    "CIFAR-100 with coarse labels": _layouts_of_100("coarse", 0),
}
_CLASSES = {"CIFAR-10": 10, "CIFAR-100": 100, "CIFAR-100 with coarse labels": 20}
_ARCHIVES = {"cifar-10-batches-bin": "cifar-10-binary.tar.gz", "cifar-100-binary": "cifar-100-binary.tar.gz"}
"""The official archive that contains each folder."""


def load10(folder: Path, download: bool) -> tuple[Images, Images]:
    """Read CIFAR-10's (train, test)."""
    return _load("CIFAR-10", folder, download)


def load100(folder: Path, download: bool) -> tuple[Images, Images]:
    """Read CIFAR-100's (train, test) with its 100 fine labels."""
    return _load("CIFAR-100", folder, download)


def load100_coarse(folder: Path, download: bool) -> tuple[Images, Images]:
    """Read CIFAR-100's (train, test) with its 20 coarse labels."""
    return _load("CIFAR-100 with coarse labels", folder, download)


def _load(name: str, data: Path, download: bool) -> tuple[Images, Images]:
    classes = _CLASSES[name]
    for layout in _LAYOUTS[name]:
        for at in (data / layout.folder, data):  # the data folder may itself be the folder of the layout
            if not layout.missing(at):
                return _read(layout, at, classes)
    binary, pickled = _LAYOUTS[name]
    wanted = fetch.Wanted(name, data, f"its folder {binary.folder} or {pickled.folder}")
    at = data / binary.folder
    if not os.path.exists(at):
        fetch.archive(_ARCHIVES[binary.folder], binary.folder, wanted, download)
    if missing := binary.missing(at):
        raise UserError(f"{at} lacks {missing[0]}: add the file, or delete the folder to download it again.")
    return _read(binary, at, classes)


def _read(layout: Layout, at: Path, classes: int) -> tuple[Images, Images]:
    names = tuple(layout.read_names(at / layout.names))
    if len(names) != classes:
        raise UserError(
            f"{at / layout.names} has {len(names)} class names instead of {classes}: replace it with an intact copy."
        )

    def part(files: tuple[str, ...]) -> Images:
        read = [layout.read(at / file) for file in files]
        for file, (_, labels) in zip(files, read, strict=True):
            check_labels(at / file, labels, classes)
        x = np.concatenate([images for images, _ in read]).reshape(-1, 3, 32, 32)
        return to_images(x, np.concatenate([labels for _, labels in read]), names)

    return part(layout.train), part(layout.test)


def _empty_array(kind: object, shape: object, code: object) -> NDArray[np.uint8]:
    """Stand in for NumPy's `_reconstruct`: the state that follows in the pickle has the shape and the bytes."""
    return np.empty(0, np.uint8)


def _byte_type(code: bytes | str, *options: object) -> "np.dtype[np.uint8]":
    """Stand in for `numpy.dtype`: another type than uint8 could contain object pointers."""
    name = code.decode("ascii", "replace") if isinstance(code, bytes) else code
    if name not in ("u1", "|u1", "uint8"):
        raise UserError(f"has an array of type {name!r} where only bytes are expected")
    return np.dtype(np.uint8)


_ADMITTED: dict[tuple[str, str], Callable[..., Any] | str] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): "ndarray",  # only ever an argument of `_reconstruct`; a string cannot be called
    ("numpy", "dtype"): _byte_type,
}


_MOST_CODES, _MOST_PARTS = 2_000_000, 200
"""The limits on opcodes of a pickle, and on those that create a list, tuple, dictionary or object; the largest official
file has about 200,000 and 20."""
_VALUES = {
    *("NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT"),
    *("BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "GLOBAL", "STACK_GLOBAL", "REDUCE"),
}
"""Opcodes whose result is not a container; that of `REDUCE` is an array or its type."""
_PARTS = {
    *("EMPTY_LIST", "EMPTY_TUPLE", "EMPTY_DICT", "LIST", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "DICT"),
    *("REDUCE", "BUILD"),
}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
_CODES = {*_VALUES, *_PARTS, *_GETS, "PROTO", "FRAME", "MARK", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "STOP"}


def _check_codes(content: bytes) -> None:
    """Raise an error for a pickle that is more than values in a few lists, before any object is built.

    This bounds time and memory by the size of the file: a container that occurs twice in another one that occurs twice,
    and so on, would be a structure of exponential size.
    """
    last, parts, places = "", 0, dict[int, str]()
    codes: Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]] = pickletools.genops(content)
    for count, (code, argument, _) in enumerate(codes):
        name = code.name
        parts += name in _PARTS
        if name in _PUTS:
            if name != "MEMOIZE" and not 0 <= argument <= _MOST_CODES:
                raise UserError(f"stores a value at index {argument:,} of its memo, which is out of range")
            places[len(places) if name == "MEMOIZE" else argument] = last
        elif name in _GETS and places.get(argument, "") not in _VALUES:
            raise UserError("refers to the same list or tuple twice")
        elif name not in _CODES:
            raise UserError(f"has the opcode {name}, which a data file does not need")
        if count > _MOST_CODES or parts > _MOST_PARTS or (isinstance(argument, int) and abs(argument) >= 1 << 63):
            raise UserError("is larger than any file of images, labels and names")
        last = last if name in _PUTS or name == "FRAME" else name


class _Unpickler(pickle.Unpickler):
    """An unpickler that builds only byte arrays and plain values."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise UserError(f"refers to {module}.{name}, which a data file does not need") from None


def unpickle(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary; byte strings of Python 2 are decoded to text."""
    with reading(path, "a pickled data file"):
        content = content_of(path)
        try:
            _check_codes(content)
            entry = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        except UserError as refused:
            raise UserError(f"{path} {refused}: replace it with the official file.") from None
        if not isinstance(entry, dict):
            raise TypeError(f"a dictionary is expected, not {type(entry).__name__}")
        return {_text(key): value for key, value in entry.items()}


def _text(value: object) -> str:
    """Decode a byte string of Python 2."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
