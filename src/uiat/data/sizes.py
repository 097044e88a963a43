"""Sizes of the known data sets and of their splits, for plans that need no data."""

from dataclasses import dataclass

from uiat.data.data_config import DataConfig
from uiat.data.images import default_validation
from uiat.types import DataSpec


@dataclass(frozen=True)
class KnownSize:
    """Size of a known data set."""

    train: int
    test: int
    classes: int
    shape: tuple[int, int, int]
    """Channels, height and width of an image."""


SIZES: dict[str, KnownSize] = {
    "digits": KnownSize(1438, 359, 10, (1, 8, 8)),
    "cifar10": KnownSize(50_000, 10_000, 10, (3, 32, 32)),
    "cifar100": KnownSize(50_000, 10_000, 100, (3, 32, 32)),
    "cifar100-coarse": KnownSize(50_000, 10_000, 20, (3, 32, 32)),
    "fashion-mnist": KnownSize(60_000, 10_000, 10, (1, 28, 28)),
    "svhn": KnownSize(73_257, 26_032, 10, (3, 32, 32)),
}
"""Size of each data set in `SOURCES`."""


@dataclass(frozen=True)
class SplitSizes:
    """Numbers of images in a run's splits, and the dimensions of its training data."""

    train: int
    validation: int
    test: int
    spec: DataSpec


def split_sizes(data: DataConfig) -> SplitSizes:
    """Return the sizes of the splits of a known data set."""
    known = SIZES[data.name]
    total, test = data.subset or known.train, data.test_subset or known.test
    validation = data.validation or default_validation(total)
    shape = known.shape
    if data.size is not None:
        high, wide = data.size if isinstance(data.size, tuple) else (data.size, data.size)
        shape = (shape[0], high, wide)
    train = total - validation
    return SplitSizes(train, validation, test, DataSpec(known.classes, train, shape))
