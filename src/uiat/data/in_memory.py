"""Images in memory: arrays, tensors, or the items of a map-style data set."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import IterableDataset

from uiat.data.files import to_images
from uiat.data.images import Images
from uiat.data.npz import labels, to_channels_first
from uiat.data.rows import class_names, image_and_label
from uiat.errors import UserError, first_line

IN_MEMORY = "in-memory"
"""The name of such data in a configuration."""
_PROBES = 16
"""Items that are read twice, to find random transforms."""


def gather_images(source: Any, where: str, classes: Sequence[str] = ()) -> Images:
    """Return the images of a pair (x, y) of tensors or arrays, or of a map-style data set.

    x is N×C×H×W, N×H×W×C or N×H×W: bytes, or floats in [0, 1], which are rounded to 8 bits; y may be a list. `classes`
    are the names of the classes if the data has none. Errors name the data as `where`.
    """
    if isinstance(source, Images):
        return source
    if not _is_pair(source):
        source, classes = _stacked(source, where), class_names(source) or classes
    x, y = (np.array(part.detach().cpu().numpy() if isinstance(part, Tensor) else part) for part in source)  # copies
    pixels, label = to_channels_first(where, x), labels(where, y, len(x))
    images = to_images(pixels, label, tuple(classes) or tuple(str(k) for k in range(int(label.max(initial=0)) + 1)))
    images.check(where)
    return images


def _is_pair(source: Any) -> bool:
    return (
        isinstance(source, tuple | list)
        and len(source) == 2
        and isinstance(source[0], Tensor | np.ndarray)
        and isinstance(source[1], Tensor | np.ndarray | list | tuple)
    )


def _stacked(dataset: Any, where: str) -> tuple[Any, Any]:
    """Return the images and labels of a map-style data set, as arrays (N, C, H, W) and (N,)."""
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UserError(
            f"{where} is of type {type(dataset).__name__}: give a map-style data set of (image, label), or a pair "
            "(x, y) of tensors."
        )
    xs, ys = [], []
    count = len(dataset)
    for k in range(count):
        try:
            image, label = image_and_label(dataset[k])
            again = image_and_label(dataset[k])[0] if k % -(-count // _PROBES) == 0 else image
            xs.append(_channels_first(image))
            ys.append(label)
        except Exception as error:  # custom code may raise anything; the cause is kept for a debugger
            why = first_line(error).removeprefix("ValueError: ")
            raise UserError(f"item {k} of {where} cannot be used: {why}.") from error
        if again is not image and not np.array_equal(xs[-1], _channels_first(again), equal_nan=True):
            raise UserError(
                f"item {k} of {where} has different pixels each time it is read: remove random transforms; uiat.fit "
                "crops and flips training images itself (crop=…, flip=…)."
            )
        if xs[-1].shape != xs[0].shape or xs[-1].dtype != xs[0].dtype:
            raise UserError(
                f"item {k} of {where} is {xs[-1].dtype} of shape {xs[-1].shape}, and the first {xs[0].dtype} of shape "
                f"{xs[0].shape}: let the data set convert and resize all images alike."
            )
    return np.stack(xs) if xs else np.empty((0, 1, 8, 8), np.uint8), np.asarray(ys, np.int64)


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
