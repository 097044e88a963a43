"""Images and labels in memory: tensors, NumPy arrays, or the batches of a loader."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uiat.data.images import Images
from uiat.data.rows import columns
from uiat.errors import UserError, first_line


def read_tensors(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return images and labels of tensors, arrays, `uiat.images`, or batches."""
    if isinstance(x, Images) and y is None:
        return x.x, x.y
    if isinstance(x, Tensor | np.ndarray):
        if y is None:
            raise UserError("there are images without labels: give y, or batches of both, such as a DataLoader.")
        return _tensor(x), _labels(y)
    if y is not None:
        raise UserError(f"x is a {type(x).__name__}: with y, give a tensor or a NumPy array.")
    try:
        iterator = iter(x)
    except TypeError:
        raise UserError(f"x is of type {type(x).__name__}: give images, or batches such as a DataLoader.") from None
    batches = [_pair(batch) for batch in iterator]
    if not batches:
        raise UserError("the data has no batches: give at least one.")
    if len({(x.shape[1:], x.dtype) for x, _ in batches}) > 1:
        raise UserError("the images of the batches have several shapes or types: give all the same.")
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def _pair(batch: Any) -> tuple[Tensor, Tensor]:
    """Return images and labels of a batch."""
    try:
        if not isinstance(batch, Mapping) and not (isinstance(batch, tuple | list) and len(batch) in (2, 3)):
            raise ValueError(
                f"it is {type(batch).__name__}: give (x, y), (index, x, y), or a dict with image and label"
            )
        images, labels = columns(batch) if isinstance(batch, Mapping) else batch[-2:]
    except ValueError as error:
        raise UserError(f"a batch cannot be used: {error}.") from None
    x, y = _tensor(images), _labels(labels)
    if y.ndim != 1 or len(x) != len(y):
        raise UserError(f"a batch has images {tuple(x.shape)} and labels {tuple(y.shape)}: give batches, not samples.")
    return x.cpu(), y.cpu()


def _tensor(values: Any, what: str = "images") -> Tensor:
    """Return an array as a tensor; NumPy's float64 becomes float32. A read-only array, or a reversed one, is copied."""
    try:
        tensor = torch.as_tensor(
            np.require(values, requirements=("C", "W")) if isinstance(values, np.ndarray) else values
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"the {what} are of type {type(values).__name__}, not numbers ({first_line(error)}).") from None
    return tensor.float() if isinstance(values, np.ndarray) and tensor.is_floating_point() else tensor


def _labels(values: Any) -> Tensor:
    """Return labels as int64, whatever the type of integers."""
    labels = _tensor(values, "labels")
    integers = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    return labels.long() if integers else labels
