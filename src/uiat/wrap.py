"""A wrapper for custom data sets: sample indices."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from uiat.errors import UserError


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
