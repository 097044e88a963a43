"""Unpickling that can build byte arrays and plain values, and nothing else.

A pickle is a program. The official CIFAR files are pickles of Python 2, so the names that they need are
answered here by stand-ins that do only what those files use; any other name is refused, never looked up.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uiat.data.files import reading
from uiat.errors import UserError


def _empty_array(kind: object, shape: object, code: object) -> NDArray[np.uint8]:
    """Stand for NumPy's `_reconstruct`: the state that follows in the pickle brings shape and bytes."""
    return np.empty(0, np.uint8)


def _byte_type(code: bytes | str, *options: object) -> "np.dtype[np.uint8]":
    """Stand for `numpy.dtype`: another type than uint8 could smuggle object pointers in its state."""
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


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise UserError(f"asks for {module}.{name}, which a data file has no need of") from None


def load(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary; keys and names that Python 2 wrote as byte strings become text."""
    with reading(path, "a pickled data file"), path.open("rb") as file:
        try:
            entry = _Unpickler(file, encoding="bytes").load()
        except UserError as refused:
            raise UserError(f"{path} {refused}: refused, replace it with the official file.") from None
        if not isinstance(entry, dict):
            raise TypeError(f"a dictionary is expected, not {type(entry).__name__}")
        return {text(key): value for key, value in entry.items()}


def text(value: object) -> str:
    """Return a byte string of Python 2 as text."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
