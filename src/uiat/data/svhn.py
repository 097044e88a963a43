"""SVHN, street-view house numbers cropped to 32×32 pixels (format 2 of its authors), in MATLAB files.

`scipy.io.loadmat` is not used: one wrong byte in a file can crash the interpreter, even if `scipy.io.whosmat` accepts
the file. Here, every length and type is checked before it is used, and no more is decompressed than the shape of an
array needs.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uiat.data import fetch
from uiat.data.files import MAX_FILE_BYTES, check_file_size, check_labels, content_of, first_file, reading, to_images
from uiat.data.images import Images

_FILES = ("train_32x32.mat", "test_32x32.mat")
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""NumPy types of the types of stored data (miINT8 … miUINT64)."""
_NUMERIC_CLASSES = range(6, 16)
"""Classes of numeric arrays (mxDOUBLE … mxUINT64); the others are structures, text and objects."""
_COMPLEX = 0x0800
_MOST_RATIO = 100
"""How much larger than packed a large array is at most; photographs shrink by less than half."""
_HEAD = 1024
"""An upper bound of the bytes in an array before its numbers."""
_MAX_BYTES = 2 * MAX_FILE_BYTES
"""The size limit, also for the extra training images, which may be used in place of the training images."""


def load_svhn(folder: Path, download: bool) -> tuple[Images, Images]:
    """Read SVHN's (train, test), without the extra training images."""
    wanted = fetch.Wanted("SVHN", folder, " and ".join(_FILES))
    train, test = (
        first_file(folder / "svhn" / name, folder / name) or fetch.file(name, folder / "svhn", wanted, download)
        for name in _FILES
    )
    return _read(train), _read(test)


def _read(path: Path) -> Images:
    with reading(path, "SVHN's MATLAB file"):
        content = read_matlab(path, ("X", "y"))
        x, y = content["X"], content["y"]
        if x.dtype != np.uint8 or x.ndim != 4 or x.shape[:3] != (32, 32, 3) or not x.shape[3]:
            raise ValueError(f"X must be uint8 of shape 32×32×3×N, not {x.dtype} of {x.shape}")
        if y.dtype.kind not in "iu" or y.shape != (x.shape[3], 1):
            raise ValueError(f"y must be {x.shape[3]}×1 integers, not {y.dtype} of {y.shape}")
    labels = y[:, 0]
    check_labels(path, labels, classes=10, first=1)
    digits = labels % 10  # 10 stands for the digit 0
    return to_images(x.transpose(3, 2, 0, 1), digits, tuple(str(k) for k in range(10)))


def read_matlab(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the numeric arrays of these names in a MATLAB file of version 5 to 7.

    Call it in `reading`: a missing or damaged array raises an exception.
    """
    content = memoryview(content_of(path, _MAX_BYTES))
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(bytes(content[124:128]))
    if order is None:
        raise ValueError("it has no header of a MATLAB file of version 5 to 7")
    arrays: dict[str, NDArray[Any]] = {}
    for kind, data in _elements(content[128:], order):
        if kind == _COMPRESSED:
            kind, data = _unpack(data, order, names)
        if kind == _MATRIX:
            arrays.update(_matrix(data, order, names))
    return {name: arrays[name] for name in names}


def _unpack(packed: memoryview, order: str, names: tuple[str, ...]) -> tuple[int, memoryview]:
    """Decompress an array if it has one of these names and its size matches its shape."""
    start = memoryview(zlib.decompressobj().decompress(packed, _HEAD))
    kind, size = struct.unpack_from(f"{order}II", start)
    (_, shape), (_, name) = islice(_elements(start[8:], order), 1, 3) if kind == _MATRIX else [(0, b"")] * 2
    if bytes(name).decode("latin-1") not in names:
        return kind, start[:0]
    numbers = math.prod(np.frombuffer(shape, f"{order}i4").tolist())
    check_file_size(max(size, numbers), min(_MAX_BYTES, 8 * numbers + _HEAD))
    if size > MAX_FILE_BYTES // 4 and size > _MOST_RATIO * len(packed):
        raise ValueError(f"a packed array would grow from {len(packed):,} bytes to {size:,}")
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(packed, 8 + size + -size % 8)
    if unpacker.decompress(unpacker.unconsumed_tail, 1) or not unpacker.eof:
        raise ValueError("a compressed array does not have the length in its header")
    ((kind, data),) = _elements(memoryview(content), order)
    return kind, data


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield (type, data) of consecutive elements, each of which has a tag with its type and length."""
    at = 0
    while at < len(content):
        if at + 8 > len(content):
            raise ValueError("it is truncated")
        kind, size = struct.unpack_from(f"{order}II", content, at)
        start = at + 8
        if kind >> 16:  # a small element: its length in the upper half of the type, its data in the tag
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            end = at + 8
            if size > 4:
                raise ValueError(f"an element of type {kind} has an invalid length")
        else:
            end = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > len(content):
            raise ValueError("it is truncated")
        yield kind, content[start : start + size]
        at = end


def _matrix(content: memoryview, order: str, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Read an array, which consists of flags, shape, name and numbers, if it has one of these names."""
    parts = list(islice(_elements(content, order), 4))
    key = bytes(parts[2][1]).decode("latin-1") if len(parts) == 4 else ""
    if key not in names:
        return {}
    (_, flags), (_, shape), _, (kind, data) = parts
    (flag,) = struct.unpack_from(f"{order}I", flags)
    if flag & 0xFF not in _NUMERIC_CLASSES or flag & _COMPLEX or kind not in _NUMBERS:
        raise ValueError(f"{key} is not an array of real numbers")
    sides = np.frombuffer(shape, f"{order}i4").tolist()
    if min(sides, default=-1) < 0:
        raise ValueError(f"{key} has the shape {sides}")
    return {key: np.frombuffer(data, order + _NUMBERS[kind]).reshape(sides, order="F")}
