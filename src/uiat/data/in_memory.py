"""Images in memory (arrays, tensors, PIL images, items of data sets), converted to one layout and type."""

import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset

from uiat.data.files import to_images
from uiat.data.images import Images
from uiat.errors import UserError, first_line

if TYPE_CHECKING:
    from PIL.Image import Image

IN_MEMORY = "in-memory"
"""The name of such data in a configuration."""
MAX_CLASSES = 100_000
IMAGE_KEYS = ("image", "images", "img", "pixel_values", "x")
LABEL_KEYS = ("label", "labels", "target", "targets", "y")
"""Keys of a row, or of a batch of rows; exactly one of each must be there."""
_PROBES = 16
"""Items that are read twice, to find random transforms."""
_CHUNK = 4096
"""Images converted at a time."""


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
    pixels, label = to_channels_first(where, x), check_labels(where, y, len(x))
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


def as_image(value: Any) -> "Image":
    """Convert a PIL image, an array (H, W) or (H, W, C), or a tensor (C, H, W) to a PIL image."""
    from PIL import Image

    if isinstance(value, Image.Image):
        return value
    array = _channels_first(value)
    if array.ndim != 3 or array.shape[0] not in (1, 3):
        raise ValueError(
            f"it has shape {tuple(value.shape)}: give an array H×W×C or a tensor C×H×W with 1 or 3 channels, or H×W"
        )
    pixels = to_bytes(array).transpose(1, 2, 0)
    return Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))


def to_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pixels as uint8; floats in [0, 1] are multiplied by 255, others raise a `ValueError`."""
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise ValueError(f"is {array.dtype}: give uint8, or floats from 0 to 1")
    out = np.empty(array.shape, np.uint8)
    for start in range(0, len(array), _CHUNK):  # a float64 copy of all images may not fit into memory
        part = array[start : start + _CHUNK]
        low, high = float(part.min(initial=0)), float(part.max(initial=0))
        if not (low >= 0 and high <= 1):
            bad = low if low < 0 else high
            wrong = "NaN pixels" if np.isnan(low) else f"the pixel value {bad:g}, outside 0 to 1"
            raise ValueError(f"has {wrong}: scale floats to [0, 1], or give uint8")
        out[start : start + _CHUNK] = np.rint(part.astype(np.float64) * 255)
    return out


def to_channels_first(where: Path | str, image: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert images of any supported layout and type to uint8 (N, C, H, W)."""
    if image.ndim == 3:
        image = image[..., None]
    if image.ndim != 4 or not (image.shape[3] in (1, 3) or image.shape[1] in (1, 3)):
        raise UserError(
            f"`image` of {where} has shape {image.shape}: give N×H×W×C or N×C×H×W with 1 or 3 channels, or N×H×W."
        )
    if not len(image):
        raise UserError(f"{where} has no images.")
    if image.shape[3] in (1, 3):
        image = image.transpose(0, 3, 1, 2)
    try:
        return to_bytes(image)
    except ValueError as error:
        raise UserError(f"`image` of {where} {error}.") from None


def check_labels(where: Path | str, label: NDArray[Any], count: int) -> NDArray[np.integer]:
    """Return the labels, checked to be one integer from 0 for each of `count` images."""
    if label.dtype.kind not in "iu":
        raise UserError(f"`label` of {where} is {label.dtype}: give integers from 0.")
    if label.shape != (count,):
        raise UserError(f"`label` of {where} has shape {label.shape} for {count} images: give one label per image.")
    if not 0 <= label.min() <= label.max() < MAX_CLASSES:
        bad = label.min() if label.min() < 0 else label.max()
        raise UserError(f"{where} has label {bad}: number the classes from 0 without gaps.")
    return label


def image_and_label(item: Any) -> tuple[Any, int]:
    """Return the image of an item, unchanged, and its label; raise a `ValueError` that says what is wrong with it."""
    if isinstance(item, Mapping):
        item = columns(item)
    if not isinstance(item, tuple | list) or len(item) != 2:
        held = f"{type(item).__name__}{f' of {len(item)}' if isinstance(item, tuple | list) else ''}"
        raise ValueError(f"it is {held}: give (image, label), or a dict with these keys")
    try:
        return item[0], operator.index(item[1])
    except TypeError:
        raise ValueError(f"its label is {type(item[1]).__name__}: give an integer from 0") from None


def columns(row: Mapping[Any, Any]) -> tuple[Any, Any]:
    """Return the image and the label of a row, or the images and labels of a batch; other keys are ignored."""
    found = [key for key in (*IMAGE_KEYS, *LABEL_KEYS) if key in row]
    if len(found) != 2 or found[0] not in IMAGE_KEYS or found[1] not in LABEL_KEYS:
        keys = ", ".join(map(repr, row))
        raise ValueError(f"it has the keys {keys}: give 'image' and 'label' (rename_column of the data set)")
    return row[found[0]], row[found[1]]


def class_names(dataset: Any) -> tuple[str, ...]:
    """Return the names of the classes, as data sets of torchvision and of Hugging Face have them; empty without."""
    features = getattr(dataset, "features", None)
    labels = (features.get(key) for key in LABEL_KEYS) if isinstance(features, Mapping) else ()
    given = (getattr(dataset, "classes", None), *(getattr(label, "names", None) for label in labels))
    return tuple(map(str, next((names for names in given if names is not None), ())))
