"""One image file as bytes of pixels, whatever its mode; files that only pretend to be images are refused.

Pillow is imported by those who read image files, and by nobody else.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".avif", ".bmp", ".gif"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
)
"""How the names of image files end."""
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "AVIF")
"""What a file may hold: formats that are decoded, not run (EPS, for one, is a program)."""
_GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N")
_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)
"""EXIF orientations that change width and height."""


class Facts(NamedTuple):
    """What the head of an image file tells."""

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
    """Open an image without decoding it; more pixels than Pillow trusts are an error, other complaints are not."""
    from PIL import Image, UnidentifiedImageError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as odd metadata, which does not touch the pixels
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file, formats=_formats()) as image:
                yield image
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            limit = Image.MAX_IMAGE_PIXELS or 0
            raise ValueError(f"it claims more than {limit:,} pixels, refused as a decompression bomb") from None
        except UnidentifiedImageError:
            raise ValueError("it is no image of a known format") from None


def look(file: IO[bytes]) -> Facts:
    """Read the head of an image: its size as it is to be seen, and whether it is grey."""
    with opened(file) as image:
        # A PNG may keep its orientation behind the pixels; for the sake of speed only the head is asked here.
        exif = image.getexif() if image.format != "PNG" or "exif" in image.info else {}
        width, height = image.size[::-1] if exif.get(_ORIENTATION) in _TURNED else image.size
        return Facts(height, width, image.mode in _GREY)


def pixels(file: IO[bytes], size: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    """Return an image as uint8 (C, H, W) of this (height, width): upright, on white where it is transparent.

    Of an animation the first picture is taken. Sides that differ are stretched or shrunk to fit, nothing is cut off;
    a side that shrinks is averaged.
    """
    from PIL import Image, ImageOps

    with opened(file) as image:
        if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
            raise ValueError("its pixels have 32 bits and no known range: save it with 8 or 16 bits")
        shown = _opaque(_eight_bits(ImageOps.exif_transpose(image))).convert("L" if grey else "RGB")
        if shown.size != (size[1], size[0]):
            shown = shown.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        found = np.asarray(shown, np.uint8)
    return found[None] if grey else found.transpose(2, 0, 1)


def _eight_bits(image: "Image") -> "Image":
    """Scale 16 bits to 8; Pillow alone would cut off all above 255."""
    from PIL import Image

    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("its pixels lie outside 16 bits")
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))


def _opaque(image: "Image") -> "Image":
    """Lay a transparent image on white; what hides under transparent pixels is arbitrary."""
    from PIL import Image

    if not image.has_transparency_data:
        return image
    canvas = Image.new("RGBA", image.size, "white")
    canvas.alpha_composite(image.convert("RGBA"))
    return canvas
