"""Size and kind of image files, and conversion of image objects of any type.

Pillow is imported only by commands that read custom images.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from uiat.data.pixels import RESAMPLING, to_pixels

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".avif", ".bmp", ".gif"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
)
"""Suffixes of image files."""
_GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N")
_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)
"""EXIF orientations that swap width and height."""
_CHUNK = 4096
"""Images converted at a time."""


class ImageFacts(NamedTuple):
    """Size and kind of an image."""

    height: int
    width: int
    grey: bool


def as_image(value: Any) -> "Image":
    """Convert a PIL image, an array (H, W) or (H, W, C), or a tensor (C, H, W) to a PIL image."""
    from PIL import Image

    if isinstance(value, Image.Image):
        return value
    if isinstance(value, Tensor):
        array = value.detach().cpu().numpy()
        array = array.transpose(1, 2, 0) if array.ndim == 3 else array
    elif isinstance(value, np.ndarray):
        array = value
    else:
        raise ValueError(f"it is {type(value).__name__}: give a PIL image, a NumPy array or a tensor")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3)):
        raise ValueError(
            f"it has shape {tuple(value.shape)}: give an array H×W×C or a tensor C×H×W with 1 or 3 channels, or H×W"
        )
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise ValueError(f"it is {array.dtype}: give uint8, or floats from 0 to 1")
    array = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    return Image.fromarray(np.ascontiguousarray(to_bytes(array)))


def to_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pixels as uint8; floats in [0, 1] are multiplied by 255, others raise a `ValueError`."""
    if array.dtype == np.uint8:
        return array
    out = np.empty(array.shape, np.uint8)
    for start in range(0, len(array), _CHUNK):  # a float64 copy of all images may not fit into memory
        part = array[start : start + _CHUNK]
        if np.isnan(part).any():
            raise ValueError("has NaN pixels: remove them")
        low, high = float(part.min(initial=0)), float(part.max(initial=0))
        if low < 0 or high > 1:
            raise ValueError(
                f"has the pixel value {low if low < 0 else high:g}, outside 0 to 1: "
                "scale floats to [0, 1], or give uint8"
            )
        out[start : start + _CHUNK] = np.rint(part.astype(np.float64) * 255)
    return out


def image_facts(image: "Image") -> ImageFacts:
    """Return the size of an upright image, and whether it is grey; only the header of a file is read."""
    # A PNG may have its orientation after the pixels; it is then ignored here, for speed.
    exif = image.getexif() if image.format != "PNG" or "exif" in image.info else {}
    width, height = image.size[::-1] if exif.get(_ORIENTATION) in _TURNED else image.size
    return ImageFacts(height, width, image.mode in _GREY)


def to_array(image: "Image", size: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    """Return an image as an array of its pixels (`to_pixels`)."""
    array: NDArray[np.uint8] = to_pixels(image, size, grey).numpy()
    return array


def preprocessing(shape: Sequence[int]) -> dict[str, Any]:
    """Return, for a JSON file, how a picture becomes the input of a network for images of this shape (`to_pixels`)."""
    channels, height, width = shape
    return {
        "size": [height, width],
        "colour": "grey" if channels == 1 else "RGB",
        "resampling": RESAMPLING,
        "range": [0.0, 1.0],
    }
