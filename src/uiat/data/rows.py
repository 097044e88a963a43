"""Items of custom data sets, as (image, label) or as rows of Hugging Face, and the names of their classes."""

import operator
from collections.abc import Mapping
from typing import Any

IMAGE_KEYS = ("image", "images", "img", "pixel_values", "x")
LABEL_KEYS = ("label", "labels", "target", "targets", "y")
"""Keys of a row, or of a batch of rows; exactly one of each must be there."""


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
