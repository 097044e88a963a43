"""Images and labels in memory: tensors, NumPy arrays, or the batches of a loader."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uiat.errors import UserError

IMAGE_KEYS, LABEL_KEYS = ("image", "images", "img", "pixel_values", "x"), ("label", "labels", "y", "target", "targets")
"""Keys of a batch that is a dict."""


def read_tensors(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return images and labels of tensors, arrays, or batches."""
    if isinstance(x, Tensor | np.ndarray):
        if y is None:
            raise UserError("there are images without labels: give y, or batches of both, such as a DataLoader.")
        return _tensor(x), _labels(y)
    if y is not None:
        raise UserError(f"x is a {type(x).__name__}: with y, give a tensor or a NumPy array.")
    batches = [_pair(batch) for batch in x]
    if not batches:
        raise UserError("the data has no batches: give at least one.")
    if len({(x.shape[1:], x.dtype) for x, _ in batches}) > 1:
        raise UserError("the images of the batches have several shapes or types: give all the same.")
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def _pair(batch: Any) -> tuple[Tensor, Tensor]:
    """Return images and labels of a batch."""
    if isinstance(batch, Mapping):
        found = [next((batch[key] for key in keys if key in batch), None) for keys in (IMAGE_KEYS, LABEL_KEYS)]
    else:
        found = list(batch[-2:]) if isinstance(batch, tuple | list) and len(batch) in (2, 3) else [None]
    if any(part is None for part in found):
        held = f"the keys {list(batch)}" if isinstance(batch, Mapping) else f"the type {type(batch).__name__}"
        raise UserError(
            f"a batch has {held}: give (x, y), (index, x, y), or a dict with one of {', '.join(IMAGE_KEYS)} and one of "
            f"{', '.join(LABEL_KEYS)}."
        )
    x, y = _tensor(found[0]), _labels(found[1])
    if y.ndim != 1 or len(x) != len(y):
        raise UserError(f"a batch has images {tuple(x.shape)} and labels {tuple(y.shape)}: give batches, not samples.")
    return x.cpu(), y.cpu()


def _tensor(values: Any) -> Tensor:
    tensor = torch.as_tensor(values)
    return tensor.float() if isinstance(values, np.ndarray) and tensor.is_floating_point() else tensor


def _labels(values: Any) -> Tensor:
    """Return labels as int64, whatever the type of integers."""
    labels = torch.as_tensor(values)
    integers = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    return labels.long() if integers else labels
