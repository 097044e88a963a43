"""Data sets, and their training, validation and test splits."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from uiat.data import cifar, custom, grey, in_memory, npz, svhn
from uiat.data.data_config import DataConfig
from uiat.data.fetch import data_folder
from uiat.data.files import some
from uiat.data.images import SPLIT_SEED, Images, Parts, default_validation, hold_out, resize, stratified
from uiat.data.loader import Loader, plain
from uiat.errors import UserError, unknown
from uiat.types import DataSpec

__all__ = [
    "SOURCES",
    "DataConfig",
    "Images",
    "Loader",
    "Source",
    "Splits",
    "data_folder",
    "empty_classes",
    "known_size",
    "load_splits",
    "plain",
    "resize",
    "split_sizes",
    "stratified",
    "unused",
]


@dataclass(frozen=True)
class KnownSize:
    """Size of a data set, for plans that need no data."""

    train: int
    """Number of training images, from which validation images are held out."""
    test: int
    classes: int
    shape: tuple[int, int, int]
    """Channels, height and width of an image."""


@dataclass(frozen=True)
class Source:
    """A built-in data set."""

    description: str
    load: Callable[[Path, bool], tuple[Images, Images]]
    """(data folder, whether to download) → (train, test)."""
    size: KnownSize | None = None
    """Its size, if `split_sizes` is to know it."""


_CIFAR10 = KnownSize(50_000, 10_000, 10, (3, 32, 32))
SOURCES: dict[str, Source] = {
    "digits": Source(
        "handwritten digits, 8×8 grey, 1,797 images, comes with scikit-learn",
        grey.load_digits,
        KnownSize(1438, 359, 10, (1, 8, 8)),
    ),
    "cifar10": Source("CIFAR-10, 32×32 RGB, 10 classes, 50,000 + 10,000 images", cifar.load10, _CIFAR10),
    "cifar100": Source(
        "CIFAR-100, 32×32 RGB, 100 classes, 50,000 + 10,000 images", cifar.load100, replace(_CIFAR10, classes=100)
    ),
    "cifar100-coarse": Source(
        "CIFAR-100 with its 20 coarse classes, 50,000 + 10,000 images",
        cifar.load100_coarse,
        replace(_CIFAR10, classes=20),
    ),
    "svhn": Source(
        "house numbers, 32×32 RGB, 10 classes, 73,257 + 26,032 images",
        svhn.load_svhn,
        KnownSize(73_257, 26_032, 10, (3, 32, 32)),
    ),
    "fashion-mnist": Source(
        "clothes, 28×28 grey, 10 classes, 60,000 + 10,000 images",
        grey.load_fashion,
        KnownSize(60_000, 10_000, 10, (1, 28, 28)),
    ),
}

_NAMED = 8
"""How many classes a notice names."""


@dataclass(frozen=True, eq=False)
class Splits:
    """The images of a run; sample indices count within `train`."""

    train: Images
    validation: Images
    test: Images
    generated: Images | None = None
    """Generated training images, mapped from the disk; their sample indices follow those of `train`."""

    @property
    def spec(self) -> DataSpec:
        """The shape and counts of the training images, for methods and models."""
        more = 0 if self.generated is None else len(self.generated)
        return replace(self.train.spec, num_samples=len(self.train) + more)


@dataclass(frozen=True)
class SplitSizes:
    """Numbers of images in a run's splits, and the dimensions of its training data."""

    train: int
    validation: int
    test: int
    spec: DataSpec


def known_size(name: str) -> KnownSize:
    """Return the size of a built-in data set, which is not read."""
    size = SOURCES[name].size
    if size is None:
        raise UserError(f"the size of {name} is not known: give its Source a `size`.")
    return size


def split_sizes(config: DataConfig) -> SplitSizes:
    """Return the sizes of the splits of a built-in data set, which is not read."""
    known = known_size(config.name)
    total, test = config.subset or known.train, config.test_subset or known.test
    validation = config.validation or default_validation(total)
    size = config.size if config.size is not None else known.shape[1:]
    high, wide = size if isinstance(size, tuple) else (size, size)
    train = total - validation
    return SplitSizes(train, validation, test, DataSpec(known.classes, train, (known.shape[0], high, wide)))


def load_splits(config: DataConfig, data_dir: str | None = None, *, training: bool = False) -> Splits:
    """Read a data set, take the subsets, resize, and hold out the validation images.

    Generated images are read only for `training`.
    """
    splits = make_splits(read_source(config, data_dir), config)
    if not training or not config.generated.file:
        return splits
    return replace(splits, generated=npz.read_generated(config.generated.file, data_dir, splits.train))


def read_source(config: DataConfig, data_dir: str | None = None, *, quiet: bool = False) -> Parts:
    """Read a built-in data set, or custom data, whose notes are printed unless `quiet`."""
    if config.name in SOURCES:
        if config.test:
            raise UserError(f"--data.test is given, but {config.name} has a test set: omit it.")
        folder = data_folder(data_dir)
        return Parts(*SOURCES[config.name].load(folder, config.download), where=str(folder))
    if not config.name:
        raise UserError(f"no data set is given: give --data with {custom.FORMS}.")
    if custom.is_custom(config.name):
        return custom.read_custom(config, data_dir, quiet=quiet)
    if config.name == in_memory.IN_MEMORY:
        raise UserError(
            "the images were given to uiat.fit in memory: call it again with the same arguments to resume its run, or "
            f"give --data with {custom.FORMS}."
        )
    raise unknown("data set", config.name, SOURCES, others=custom.list_candidates(), advice=f"or give {custom.FORMS}.")


def make_splits(parts: Parts, config: DataConfig) -> Splits:
    """Take the subsets, resize, and hold out the validation images, unless the source has a validation split."""
    parts.train.check(f"the training set of {config.name}")
    parts.test.check(f"the test set of {config.name}")
    test = _sized(_subset(parts.test, config.test_subset, "data.test_subset", "test"), config)
    if parts.drawn and config.subset is None and config.validation in (None, parts.drawn):
        train, validation = parts.cut()
        train, validation = _sized(train, config), _sized(validation, config)
    else:
        train = _sized(_subset(parts.train, config.subset, "data.subset", "training"), config)
        train, validation = _held_out(train, parts, config)
    if train.spec.shape != test.spec.shape:
        raise UserError(
            f"training images of {config.name} are {_shape(train)} but test images are {_shape(test)}: "
            "they must have one shape (--data.size resizes both)."
        )
    return Splits(train, validation, test)


def unused(config: DataConfig, count: int, data_dir: str | None = None) -> Images:
    """Return training images that are not in the subset of a run, stratified by class."""
    images = read_source(config, data_dir).train
    rest = hold_out(images, config.subset or len(images), SPLIT_SEED)[0]
    if not 1 <= count <= len(rest):
        raise UserError(f"{count} unused training images are needed, but {config.name} has {len(rest)}.")
    return _sized(hold_out(rest, count, SPLIT_SEED)[1], config)


def empty_classes(splits: Splits, name: str) -> str:
    """Return a notice about classes without images in any split; "" if there are none."""
    classes = splits.train.classes
    parts = (splits.train, splits.validation, splits.test)
    present = {int(label) for part in parts for label in part.y.unique()}
    empty = [f"{k}" if label == str(k) else f"{k} ({label})" for k, label in enumerate(classes) if k not in present]
    if not empty:
        return ""
    return (
        f"{name} has {len(classes)} classes, of which {len(empty)} have no images: {some(empty, _NAMED)}; "
        "number the labels from 0 without gaps, unless this is intended"
    )


def _held_out(train: Images, parts: Parts, config: DataConfig) -> tuple[Images, Images]:
    if parts.validation is None:
        return hold_out(train, _validation(config.validation, len(train)), SPLIT_SEED)
    if config.validation is not None:
        raise UserError(f"data.validation is given, but {config.name} has a validation split: omit it.")
    parts.validation.check(f"the validation set of {config.name}")
    return train, _sized(parts.validation, config)


def _sized(images: Images, config: DataConfig) -> Images:
    return images if config.size is None else resize(images, config.size)


def _subset(images: Images, count: int | None, option: str, part: str) -> Images:
    if count is None:
        return images
    if not 1 <= count <= len(images):
        raise UserError(f"{option} is {count}, but there are {len(images)} {part} images: give 1 to {len(images)}.")
    return hold_out(images, count, SPLIT_SEED)[1]


def _validation(count: int | None, available: int) -> int:
    chosen = default_validation(available) if count is None else count
    if not 1 <= chosen < available:
        raise UserError(f"data.validation is {chosen} of {available} training images: give 1 to {available - 1}.")
    return chosen


def _shape(images: Images) -> str:
    return "×".join(str(side) for side in images.spec.shape)
