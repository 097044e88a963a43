"""What every reader of files shares."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from uiat.data.images import Images
from uiat.errors import UserError, first_line

MAX_FILE_BYTES = 1 << 30
"""No official file has more, packed or not: the largest has 225 MB. A declared size beyond it is not even tried."""


def check_file_size(size: int, most: int = MAX_FILE_BYTES) -> None:
    """Refuse, within `reading`, content that is larger than any of its kind."""
    if size > most:
        raise ValueError(f"it claims {size:,} bytes, and at most {most:,} are expected")


def content_of(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """Return all bytes of a file of an official data set; call it within `reading`."""
    check_file_size(path.stat().st_size, most)
    return path.read_bytes()


def is_file(path: Path) -> bool:
    """Tell whether a file exists; unlike `Path.is_file`, never raise over a forbidden folder."""
    return os.path.isfile(path)


def first_file(*paths: Path) -> Path | None:
    """Return the first of these files that exists."""
    return next((path for path in paths if is_file(path)), None)


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises over a damaged file into one sentence that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # parsers raise nearly anything on damaged bytes
        raise UserError(
            f"{path} cannot be read as {kind} ({first_line(error)}): replace it with an intact copy."
        ) from error


def check_labels(path: Path, labels: NDArray[np.integer], classes: int, first: int = 0) -> None:
    """Refuse labels outside first … first + classes − 1, naming the file that has them."""
    if labels.size and not first <= labels.min() <= labels.max() < first + classes:
        bad = labels.min() if labels.min() < first else labels.max()
        raise UserError(
            f"{path} has label {bad}, outside {first}…{first + classes - 1}: replace it with an intact copy."
        )


def to_images(x: NDArray[np.uint8], y: NDArray[np.integer], classes: tuple[str, ...]) -> Images:
    """Bring arrays of images (N, C, H, W) and labels into tensors; a read-only buffer of a file is copied."""
    writable = x if x.flags.c_contiguous and x.flags.writeable else x.copy(order="C")
    return Images(torch.from_numpy(writable), torch.from_numpy(y.astype(np.int64)), classes)
