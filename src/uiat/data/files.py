"""Helpers for readers of data: size limits, error messages and label checks."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from uiat.data.images import Images
from uiat.errors import UserError, first_line

MAX_FILE_BYTES = 1 << 30
"""The size limit for official files, also when unpacked; the largest has 225 MB."""


def check_file_size(size: int, most: int = MAX_FILE_BYTES) -> None:
    """Raise an error, to be caught by `reading`, if content is too large to be genuine."""
    if size > most:
        raise ValueError(f"it claims {size:,} bytes, and at most {most:,} are expected")


def content_of(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a file of limited size; call it in `reading`."""
    check_file_size(path.stat().st_size, most)
    return path.read_bytes()


def is_file(path: Path) -> bool:
    """Return whether a file exists; unlike `Path.is_file`, never raise `PermissionError`."""
    return os.path.isfile(path)


def first_file(*paths: Path) -> Path | None:
    """Return the first of these paths that is a file."""
    return next((path for path in paths if is_file(path)), None)


def some(names: Sequence[str], most: int = 5, separator: str = ", ") -> str:
    """Return the first names for a message, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn any exception of a parser into a `UserError` that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # parsers may raise anything on damaged data
        raise UserError(
            f"{path} cannot be read as {kind} ({first_line(error)}): replace it with an intact copy."
        ) from error


def check_labels(path: Path, labels: NDArray[np.integer], classes: int, first: int = 0) -> None:
    """Raise an error that names the file if labels are outside first … first + classes − 1."""
    if labels.size and not first <= labels.min() <= labels.max() < first + classes:
        bad = labels.min() if labels.min() < first else labels.max()
        raise UserError(
            f"{path} has label {bad}, outside {first}…{first + classes - 1}: replace it with an intact copy."
        )


def to_images(x: NDArray[np.uint8], y: NDArray[np.integer], classes: tuple[str, ...]) -> Images:
    """Convert arrays of images (N, C, H, W) and labels to tensors; a read-only buffer is copied."""
    writable = x if x.flags.c_contiguous and x.flags.writeable else x.copy(order="C")
    return Images(torch.from_numpy(writable), torch.from_numpy(y.astype(np.int64)), classes)
