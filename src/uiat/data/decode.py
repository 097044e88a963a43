"""Decoding of image files and objects of any mode to uint8 arrays.

Pillow is imported only by commands that read custom images.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uiat.data.images import resample

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".avif", ".bmp", ".gif"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
)
"""Suffixes of image files."""
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "AVIF")
"""Accepted formats: those that are only decoded (EPS, for example, is a program)."""
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


@cache
def _formats() -> tuple[str, ...]:
    from PIL import Image

    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@contextmanager
def opened(file: IO[bytes]) -> "Iterator[Image]":
    """Open an image without decoding it; decompression bombs are an error, other warnings are ignored."""
    from PIL import Image, UnidentifiedImageError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as invalid metadata, which does not affect the pixels
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file, formats=_formats()) as image:
                yield image
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            limit = Image.MAX_IMAGE_PIXELS or 0
            raise ValueError(f"it has more than {limit:,} pixels, refused as a decompression bomb") from None
        except UnidentifiedImageError:
            raise ValueError("it is not an image of a known format") from None


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
    """Return an image as uint8 (C, H, W) with this (height, width): upright, and on white where it is transparent.

    The first frame of an animation is taken. The image is resized by `resample`; nothing is cropped.
    """
    from PIL import ImageOps

    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise ValueError("its pixels have 32 bits and an unknown range: save it with 8 or 16 bits")
    shown = _opaque(_eight_bits(ImageOps.exif_transpose(image))).convert("L" if grey else "RGB")
    array = np.asarray(shown, np.uint8)
    array = array[None] if grey else array.transpose(2, 0, 1)
    if array.shape[1:] == size:
        return array
    return resample(torch.from_numpy(array.copy())[None], size)[0].byte().numpy()


def _eight_bits(image: "Image") -> "Image":
    """Scale 16 bits to 8; Pillow would clip values above 255."""
    from PIL import Image

    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("its pixels exceed 16 bits")
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))


def _opaque(image: "Image") -> "Image":
    """Compose a transparent image with white, since the colour of transparent pixels is arbitrary."""
    from PIL import Image

    if not image.has_transparency_data:
        return image
    canvas = Image.new("RGBA", image.size, "white")
    canvas.alpha_composite(image.convert("RGBA"))
    return canvas
