"""Wrappers for custom data sets and networks: sample indices, normalisation, and logits."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from torch import Tensor, fx, nn
from torch.utils.data import Dataset, IterableDataset

from uiat.errors import UserError
from uiat.models.networks import Normalize


class Indexed(Dataset[Any]):
    """A map-style data set whose items contain their index (see `indexed`).

    All other attributes are those of the wrapped data set, also when they are set.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        # `dataset` is missing while a copy is unpickled; `__getitems__` of the data set would give items without index.
        if name == "dataset" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "dataset":
            super().__setattr__(name, value)
        else:  # kept here, it would hide the attribute that the items depend on, such as `transform`
            setattr(self.dataset, name, value)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        positions = range(len(self))
        if isinstance(index, slice):
            index = positions[index]
        if not hasattr(index, "__index__") or getattr(index, "ndim", None):  # a list, an array or a tensor of several
            return [self[positions[k]] for k in index]
        index = positions[index]  # a negative one counts from the end, as in a list
        item = self.dataset[index]
        if isinstance(item, Mapping):
            if "index" in item:
                raise UserError("the items have a key 'index' already: rename it, because uiat.indexed adds one.")
            return {**item, "index": index}
        if isinstance(item, tuple | list):
            return (index, *item)
        raise UserError(
            f"an item of the data set is a {type(item).__name__}: uiat.indexed needs tuples such as (x, y), or dicts."
        )


def indexed(dataset: Any) -> Indexed:
    """Return the data set with the position of each sample in its items: (x, y) becomes (index, x, y).

    An item that is a dict, as Hugging Face's are, gets a key "index". A slice, or several positions, give a list of
    items. Wrap the whole training set, and take subsets afterwards: the indices remain those of the whole set, and so
    does `DataSpec.num_samples`. Attributes of the data set, such as `classes`, `targets` and `transform`, remain
    available; a data set that one of its methods returns, such as Hugging Face's `map`, is not indexed.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> dataset = indexed(TensorDataset(torch.rand(5, 1, 8, 8), torch.arange(5)))
    >>> index, x, y = dataset[3]
    >>> index, tuple(x.shape), int(y), len(dataset)
    (3, (1, 8, 8), 3, 5)
    >>> indexed([{"image": "a cat", "label": 1}])[0]
    {'image': 'a cat', 'label': 1, 'index': 0}
    """
    sized = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not sized or isinstance(dataset, IterableDataset):
        raise UserError(
            f"{type(dataset).__name__} is not a map-style data set (with a length and items by position), so its "
            "samples have no indices: convert it, or disable momentum (momentum=Momentum(enabled=False))."
        )
    return Indexed(dataset)


class _Wrapper(nn.Module):
    """A wrapper around a network, with the same feature layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        layer = getattr(model, "penultimate_layer", "")
        self.penultimate_layer = f"model.{layer}" if layer else ""


class Normalized(_Wrapper):
    """A network that normalises images in [0, 1] and passes them to `model`: (x − mean) / std for each channel.

    Mean and std are buffers: they are saved and moved with the weights.

    >>> import torch
    >>> from torch import nn
    >>> model = Normalized(nn.Flatten(), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    >>> model(torch.ones(1, 3, 1, 1))
    tensor([[2., 2., 2.]])

    Args:
        model: takes normalised images (N, channels, height, width).
        mean: one number per channel.
        std: one number per channel, above 0.
    """

    def __init__(self, model: nn.Module, mean: Iterable[float], std: Iterable[float]) -> None:
        super().__init__(model)
        means, stds = [float(value) for value in mean], [float(value) for value in std]
        if len(means) != len(stds) or not means:
            raise UserError(f"there are {len(means)} means and {len(stds)} stds: give one of each per channel.")
        if not all(map(isfinite, means)) or not all(isfinite(value) and value > 0 for value in stds):
            raise UserError(f"mean is {means} and std is {stds}: give finite numbers, and a std above 0.")
        self.channels = len(means)
        self.normalize = Normalize(means, stds, persistent=True)

    def forward(self, x: Tensor) -> Any:
        """Return the model's output for the normalised images."""
        # Without the check, one channel would broadcast to three. A trace, as made by the fast path, has no shapes.
        if not isinstance(x, fx.Proxy) and (x.ndim < 3 or x.shape[-3] != self.channels):
            raise UserError(
                f"images have shape {tuple(x.shape)}, but mean and std are of {self.channels} channels: make them "
                "agree, as (N, channels, height, width)."
            )
        return self.model(self.normalize(x))


class LogitsOf(_Wrapper):
    """A network that returns the `.logits` of the wrapped network's output (see `logits_of`)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        output = self.model(x)
        if not hasattr(output, "logits"):
            raise UserError(
                f"{type(self.model).__name__} returns a {type(output).__name__}, which has no .logits: uiat.logits_of "
                "is for networks that return an object with them, such as those of transformers."
            )
        logits: Tensor = output.logits
        return logits


def logits_of(model: nn.Module) -> LogitsOf:
    """Return a network that returns the logits, for a `model` that returns an object with an attribute `logits`.

    All classifiers of transformers do.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> from torch import nn
    >>> class Classifier(nn.Linear):
    ...     def forward(self, x):
    ...         return SimpleNamespace(logits=super().forward(x))
    >>> logits_of(Classifier(4, 3))(torch.rand(2, 4)).shape
    torch.Size([2, 3])
    """
    return LogitsOf(model)
