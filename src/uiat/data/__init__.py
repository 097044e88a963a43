"""Data sets: where they come from, and how a run's training, validation and test images are cut from them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from uiat.data import cifar, digits, fashion_mnist, generated, npz, svhn
from uiat.data.config import DataConfig
from uiat.data.fetch import data_folder
from uiat.data.files import user_path
from uiat.data.images import Images, hold_out, resize, stratified
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
    "load",
    "plain",
    "resize",
    "stratified",
]


@dataclass(frozen=True)
class Source:
    """A known data set."""

    description: str
    load: Callable[[Path, bool], tuple[Images, Images]]
    """(data folder, whether to download) → (train, test)."""


SOURCES: dict[str, Source] = {
    "digits": Source("handwritten digits, 8×8 grey, 1,797 images, comes with scikit-learn", digits.load),
    "cifar10": Source("CIFAR-10, 32×32 RGB, 10 classes, 50,000 + 10,000 images", cifar.load10),
    "cifar100": Source("CIFAR-100, 32×32 RGB, 100 classes, 50,000 + 10,000 images", cifar.load100),
    "svhn": Source("house numbers, 32×32 RGB, 10 classes, 73,257 + 26,032 images", svhn.load),
    "fashion-mnist": Source("clothes, 28×28 grey, 10 classes, 60,000 + 10,000 images", fashion_mnist.load),
}

_SPLIT_SEED = 0
"""Fixed, so that runs of different seeds train, select and test on the same images."""


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
        """What a method and a model need to know of the training images."""
        more = 0 if self.generated is None else len(self.generated)
        return replace(self.train.spec, num_samples=len(self.train) + more)


def load(config: DataConfig, data_dir: str | None = None, *, training: bool = False) -> Splits:
    """Read the data set, take the subsets, resize, and hold out the validation images.

    Generated images are looked for only where one is going to train.
    """
    train, test = _read(config, data_dir)
    train.check(f"the training set of {config.name}")
    test.check(f"the test set of {config.name}")
    train = _subset(train, config.subset, "data.subset", "training")
    test = _subset(test, config.test_subset, "data.test_subset", "test")
    if config.size is not None:
        train, test = resize(train, config.size), resize(test, config.size)
    if train.spec.shape != test.spec.shape:
        raise UserError(
            f"training images of {config.name} are {_shape(train)} but test images are {_shape(test)}: "
            "bring them to one shape (data.size resizes both)."
        )
    train, validation = hold_out(train, _validation(config.validation, len(train)), _SPLIT_SEED)
    more = generated.load(config.generated.file, data_dir, train) if training and config.generated.file else None
    return Splits(train, validation, test, more)


def _read(config: DataConfig, data_dir: str | None) -> tuple[Images, Images]:
    if config.name.lower().endswith(".npz"):
        return npz.load(user_path(config.name), user_path(config.test) if config.test else None)
    if config.name not in SOURCES:
        raise unknown("data set", config.name, [*SOURCES, "FILE.npz"])
    if config.test:
        raise UserError(f"data.test is given, but {config.name} has a test set of its own: leave it out.")
    return SOURCES[config.name].load(data_folder(data_dir), config.download)


def _subset(images: Images, count: int | None, option: str, part: str) -> Images:
    if count is None:
        return images
    if not 1 <= count <= len(images):
        raise UserError(f"{option} is {count}, but there are {len(images)} {part} images: give 1 to {len(images)}.")
    return hold_out(images, count, _SPLIT_SEED)[1]


def _validation(count: int | None, available: int) -> int:
    chosen = max(1, min(1024, available // 10)) if count is None else count
    if not 1 <= chosen < available:
        raise UserError(f"data.validation is {chosen} of {available} training images: hold out and leave at least 1.")
    return chosen


def _shape(images: Images) -> str:
    return "×".join(str(side) for side in images.spec.shape)
