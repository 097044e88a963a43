"""Images in memory: arrays, tensors, or the items of a map-style data set."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import IterableDataset

from uiat.data.files import to_images
from uiat.data.images import Images
from uiat.data.npz import labels, to_channels_first
from uiat.errors import UserError, first_line

IN_MEMORY = "in-memory"
"""The name of such data in a configuration."""
IMAGE_KEYS, LABEL_KEYS = ("image", "img", "pixel_values", "x"), ("label", "labels", "y")
"""Keys of an item that is a dict."""


def gather_images(source: Any, where: str, classes: Sequence[str] = ()) -> Images:
    """Return the images of a pair (x, y) of tensors or arrays, or of a map-style data set.

    x is N×C×H×W, N×H×W×C or N×H×W: bytes, or floats in [0, 1], which are rounded to 8 bits. `classes` are the names of
    the classes if the data has none. Errors name the data as `where`.
    """
    if isinstance(source, Images):
        return source
    if not _is_pair(source):
        source, classes = _stacked(source, where), tuple(map(str, getattr(source, "classes", None) or classes))
    x, y = (np.array(part.detach().cpu().numpy() if isinstance(part, Tensor) else part) for part in source)  # copies
    pixels, label = to_channels_first(where, x), labels(where, y, len(x))
    images = to_images(pixels, label, tuple(classes) or tuple(str(k) for k in range(int(label.max(initial=0)) + 1)))
    images.check(where)
    return images


def _is_pair(source: Any) -> bool:
    return (
        isinstance(source, tuple | list)
        and len(source) == 2
        and all(isinstance(part, Tensor | np.ndarray) and part.ndim for part in source)
    )


def _stacked(dataset: Any, where: str) -> tuple[Any, Any]:
    """Return the images and labels of a map-style data set, as arrays (N, C, H, W) and (N,)."""
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UserError(
            f"{where} is of type {type(dataset).__name__}: give a map-style data set of (image, label), or a pair "
            "(x, y) of tensors."
        )
    xs, ys = [], []
    for k in range(len(dataset)):
        try:
            image, label = _parts(dataset[k])
            xs.append(_channels_first(image))
            ys.append(int(label))
        except (TypeError, ValueError) as error:
            raise UserError(f"item {k} of {where} cannot be used: {first_line(error)}.") from None
        if xs[-1].shape != xs[0].shape or xs[-1].dtype != xs[0].dtype:
            raise UserError(
                f"item {k} of {where} is {xs[-1].dtype} of shape {xs[-1].shape}, and the first {xs[0].dtype} of shape "
                f"{xs[0].shape}: let the data set convert and resize all images alike."
            )
    return np.stack(xs) if xs else np.empty((0, 1, 8, 8), np.uint8), np.asarray(ys, np.int64)


def _parts(item: Any) -> tuple[Any, Any]:
    """Return the image and the label of an item."""
    if isinstance(item, Mapping):
        found = [next((item[key] for key in keys if key in item), None) for keys in (IMAGE_KEYS, LABEL_KEYS)]
        if found[0] is None or found[1] is None:
            raise ValueError(f"its keys are {', '.join(map(str, item))}: name them image and label")
        return found[0], found[1]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ValueError(f"it is {type(item).__name__}: give (image, label), or a dict with image and label")
    return item[0], item[1]


def _channels_first(image: Any) -> Any:
    """Return a tensor (C, H, W), an array (H, W, C) or a PIL image as an array (C, H, W)."""
    if isinstance(image, Tensor):
        array = image.detach().cpu().numpy()
        return array if array.ndim == 3 else array[None]
    if hasattr(image, "convert"):  # Pillow's; torch users without custom images need not have it
        image = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    if not isinstance(image, np.ndarray):
        raise ValueError(f"its image is {type(image).__name__}: give a tensor, an array or a PIL image")
    return image.transpose(2, 0, 1) if image.ndim == 3 else image[None]
