"""Pixels of a picture file: upright, opaque, of 8 bits, resized.

It needs only torch and Pillow, which is imported late, and nothing from uiat: exports have a copy of this file.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO, TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import interpolate

if TYPE_CHECKING:
    from PIL.Image import Image

RESAMPLING = "area, then bilinear"
"""The method of `resample`, part of the key of packed images: a change packs them again."""
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "AVIF")
"""Accepted formats: those that are only decoded (EPS, for example, is a program)."""


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


def to_pixels(image: "Image", size: tuple[int, int], grey: bool) -> Tensor:
    """Return an image as uint8 (C, H, W) with this (height, width): upright, and on white where it is transparent.

    The first frame of an animation is taken. The image is resized by `resample`; nothing is cropped.
    """
    from PIL import ImageOps

    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise ValueError("its pixels have 32 bits and an unknown range: save it with 8 or 16 bits")
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):
        pixels = _sixteen_bits(upright).expand(1 if grey else 3, -1, -1).contiguous()
    else:
        shown = _opaque(upright).convert("L" if grey else "RGB")
        content = torch.frombuffer(bytearray(shown.tobytes()), dtype=torch.uint8)
        pixels = content.view(shown.height, shown.width, -1).permute(2, 0, 1).contiguous()
    return pixels if pixels.shape[1:] == size else resample(pixels[None], size)[0].byte()


def _sixteen_bits(image: "Image") -> Tensor:
    """Return pixels of 16 bits scaled to 8; Pillow would clip values above 255."""
    values = torch.frombuffer(bytearray(image.convert("I").tobytes()), dtype=torch.int32).long()
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("its pixels exceed 16 bits")
    return ((values * 255 + 32767) // 65535).byte().view(1, image.height, image.width)


def _opaque(image: "Image") -> "Image":
    """Compose a transparent image with white, since the colour of transparent pixels is arbitrary."""
    from PIL import Image

    if not image.has_transparency_data:
        return image
    canvas = Image.new("RGBA", image.size, "white")
    canvas.alpha_composite(image.convert("RGBA"))
    return canvas


def resample(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize pixels (N, C, H, W) in 0 … 255, in the one way used for all data (docs/data.md).

    A side that shrinks is averaged over areas, then a side that grows is interpolated; the result is rounded.
    """
    height, width = x.shape[-2:]
    small = (min(height, size[0]), min(width, size[1]))
    x = x.float()
    x = x if small == (height, width) else interpolate(x, small, mode="area")
    x = x if small == size else interpolate(x, size, mode="bilinear", align_corners=False)
    return x.round_()
