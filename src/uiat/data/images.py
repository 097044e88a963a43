"""A set of labelled images, how it is split by class, and how it is resized."""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from uiat.data.pixels import resample
from uiat.errors import UserError
from uiat.rng import generator
from uiat.types import DataSpec

SMALLEST, LARGEST = 8, 1024
"""The range of image sides, in pixels, that the models support."""
SPLIT_SEED = 0
"""Fixed, so that runs with different seeds train, validate and test on the same images."""
_CHUNK = 1024
"""Images resized at a time."""
_PROBES = 64
"""Images whose pixels are part of a digest: all of them may exceed the memory."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images as stored: uint8 (N, C, H, W), int64 labels (N,), and the name of each class."""

    x: Tensor
    y: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def spec(self) -> DataSpec:
        """The shape and counts of these images, for methods and models."""
        return DataSpec(len(self.classes), len(self), tuple(self.x.shape[1:]))

    def take(self, index: Tensor) -> "Images":
        """Return the images at these indices, in this order."""
        return replace(self, x=self.x[index], y=self.y[index])

    def part(self, start: int, stop: int) -> "Images":
        """Return the images from `start` to `stop` as a view: nothing is copied, or read from a memory map."""
        return replace(self, x=self.x[start:stop], y=self.y[start:stop])

    def digest(self) -> str:
        """Return the SHA-256 of all labels and of the pixels of 64 images, evenly spaced."""
        probes = torch.linspace(0, len(self) - 1, min(_PROBES, len(self))).long()
        digest = hashlib.sha256(self.y.cpu().numpy().tobytes())
        digest.update(self.x[probes].cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def check(self, where: str) -> None:
        """Raise a `UserError` that names `where` unless these images can be trained on."""
        wrong = self._wrong()
        if wrong:
            raise UserError(f"{where} {wrong}.")

    def _wrong(self) -> str | None:
        x, y, classes = self.x, self.y, len(self.classes)
        if x.ndim != 4 or x.dtype != torch.uint8:
            return f"must be uint8 images (N, C, H, W), but is {x.dtype} of shape {tuple(x.shape)}"
        if y.ndim != 1 or y.dtype != torch.int64:
            return f"must have int64 labels (N,), but has {y.dtype} of shape {tuple(y.shape)}"
        if len(x) != len(y):
            return f"has {len(x)} images but {len(y)} labels: give one label per image"
        if not len(x):
            return "has no images"
        if x.shape[1] not in (1, 3):
            return f"has images of {x.shape[1]} channels: convert them to 1 (grey) or 3 (RGB)"
        if min(x.shape[2:]) < SMALLEST:
            return f"has images of {x.shape[2]}×{x.shape[3]} pixels: each side needs at least {SMALLEST}"
        if classes < 2:
            return "has fewer than two classes, so there is nothing to classify"
        if twice := [name for name, count in Counter(self.classes).items() if count > 1]:
            return f"has two classes named {twice[0]!r}: rename one of them"
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= classes:
            bad = low if low < 0 else high
            return f"has label {bad}, outside 0…{classes - 1} for its {classes} classes"
        return None


def to_unit(x: Tensor) -> Tensor:
    """Return a float32 copy in [0, 1]: bytes are divided by 255, floats are unchanged."""
    return x.clone().float() if x.is_floating_point() else x.float().div_(255)


def stratified(y: Tensor, fraction_or_count: float, seed: int) -> tuple[Tensor, Tensor]:
    """Choose indices at random, stratified by class, and return (chosen, rest), both sorted.

    A float is a fraction of the samples, an int their number. Counts are rounded by largest remainder, ties in favour
    of the lower class.
    """
    n = len(y)
    whole = isinstance(fraction_or_count, int)
    if not 0 <= fraction_or_count <= (n if whole else 1):
        raise UserError(f"cannot choose {fraction_or_count} of {n} samples: give 0 to {n}, or a fraction.")
    count = int(fraction_or_count) if whole else round(fraction_or_count * n)
    sizes = y.bincount()
    shares = count * sizes  # in units of 1/n, so that the arithmetic is exact
    quota = shares // max(n, 1)
    leftover = count - int(quota.sum())
    quota[(shares % max(n, 1)).argsort(descending=True, stable=True)[:leftover]] += 1

    shuffled = torch.randperm(n, generator=generator(seed, "split"))
    grouped = shuffled[y[shuffled].argsort(stable=True)]  # by class, in random order within each
    label = y[grouped]
    rank = torch.arange(n) - (sizes.cumsum(0) - sizes)[label]
    chosen = rank < quota[label]
    return grouped[chosen].sort().values, grouped[~chosen].sort().values


def hold_out(images: Images, fraction_or_count: float, seed: int = 0) -> tuple[Images, Images]:
    """Split by `stratified` and return (remaining images, held-out images)."""
    held, rest = stratified(images.y, fraction_or_count, seed)
    return images.take(rest), images.take(held)


def default_validation(available: int) -> int:
    """Return the default number of validation images: a tenth of the training images, at most 1024."""
    return max(1, min(1024, available // 10))


def check_image_size(height: int, width: int) -> None:
    """Raise an error for an image size that no model supports."""
    if not SMALLEST <= min(height, width) <= max(height, width) <= LARGEST:
        raise UserError(f"cannot resize images to {height}×{width}: give sizes from {SMALLEST} to {LARGEST}.")


def resize(images: Images, size: int | tuple[int, int]) -> Images:
    """Resize images to (height, width), or to a square, by `resample`."""
    high, wide = size if isinstance(size, tuple) else (size, size)
    check_image_size(high, wide)
    count, channels, height, width = images.x.shape
    if (height, width) == (high, wide):
        return images
    out = torch.empty(count, channels, high, wide, dtype=torch.uint8, device=images.x.device)
    for start in range(0, count, _CHUNK):  # a float copy of all images may not fit into memory
        out[start : start + _CHUNK] = resample(images.x[start : start + _CHUNK], (high, wide))
    return replace(images, x=out)


def balanced(y: Tensor, count: int, seed: int) -> Tensor:
    """Choose `count` samples at random, as evenly over the classes as possible, and return their sorted indices."""
    order = torch.randperm(len(y), generator=generator(seed, "balanced"))
    rank = torch.empty_like(y)
    for label in y.unique():
        members = order[y[order] == label]
        rank[members] = torch.arange(len(members))
    # By rank, then in random order: the first of every class, the second of every class, and so on.
    return order[rank[order].argsort(stable=True)][:count].sort().values


@dataclass(frozen=True, eq=False)
class Parts:
    """The images of a source before a run takes its subsets."""

    train: Images
    test: Images
    validation: Images | None = None
    """The validation split of the source, if it has one."""
    drawn: int = 0
    """How many images at the end of `train` were drawn as validation when the source was packed."""
    where: str = ""
    """The path of the files."""

    def cut(self) -> tuple[Images, Images]:
        """Return views of (training images, drawn validation images); no pixel is copied."""
        at = len(self.train) - self.drawn
        return self.train.part(0, at), self.train.part(at, len(self.train))
