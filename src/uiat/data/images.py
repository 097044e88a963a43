"""A set of labelled images, how it is split by class, and how it is resized."""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from uiat.errors import UserError
from uiat.rng import generator
from uiat.types import DataSpec

SMALLEST, LARGEST = 8, 1024
"""Sides of an image, in pixels, that the models here can make sense of."""
SPLIT_SEED = 0
"""Fixed, so that runs of different seeds train, select and test on the same images."""
RESAMPLING = "area, then bilinear"
"""What `resample` does, in the key of packed images: those of another resampling are packed again."""
_CHUNK = 1024
"""Images resized at a time."""
_PROBES = 64
"""Images whose pixels are part of a digest: all of them may be more than the memory holds."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images as they are stored: uint8 (N, C, H, W), int64 labels (N,), and the name of each class."""

    x: Tensor
    y: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def spec(self) -> DataSpec:
        """What a method and a model need to know of these images."""
        return DataSpec(len(self.classes), len(self), tuple(self.x.shape[1:]))

    def take(self, index: Tensor) -> "Images":
        """Return the images at these positions, in this order."""
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
        """Raise a `UserError` that names `where` unless these are images that one can train on."""
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
            return f"has {len(x)} images but {len(y)} labels: give one label an image"
        if not len(x):
            return "holds no images"
        if x.shape[1] not in (1, 3):
            return f"has images of {x.shape[1]} channels: convert them to 1 (grey) or 3 (RGB)"
        if min(x.shape[2:]) < SMALLEST:
            return f"has images of {x.shape[2]}×{x.shape[3]} pixels: each side needs at least {SMALLEST}"
        if classes < 2:
            return "has fewer than two classes, so there is nothing to classify"
        if twice := [name for name, count in Counter(self.classes).items() if count > 1]:
            return f"has two classes of the name {twice[0]!r}: give each a name of its own"
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= classes:
            bad = low if low < 0 else high
            return f"has label {bad}, outside 0…{classes - 1} for its {classes} classes"
        return None


def to_unit(x: Tensor) -> Tensor:
    """Return pixels in [0, 1] as float32, in memory of their own: bytes over 255, other numbers as they are."""
    return x.clone().float() if x.is_floating_point() else x.float().div_(255)


def stratified(y: Tensor, fraction_or_count: float, seed: int) -> tuple[Tensor, Tensor]:
    """Choose positions at random with each class in its proportion, and return (chosen, rest), both sorted.

    A float is a fraction of the samples, an int is their number. What rounding down leaves over goes to the
    classes with the largest remainders, the lower class first where these are equal.
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
    """Split by `stratified` and return (what stays, what is held out)."""
    held, rest = stratified(images.y, fraction_or_count, seed)
    return images.take(rest), images.take(held)


def default_validation(available: int) -> int:
    """Return how many training images are held out for validation unless one says so: a tenth, at most 1024."""
    return max(1, min(1024, available // 10))


def check_image_size(height: int, width: int) -> None:
    """Refuse a size that no model here can make sense of."""
    if not SMALLEST <= min(height, width) <= max(height, width) <= LARGEST:
        raise UserError(f"cannot resize images to {height}×{width}: give sizes from {SMALLEST} to {LARGEST}.")


def resize(images: Images, size: int | tuple[int, int]) -> Images:
    """Scale to (height, width) by `resample`."""
    high, wide = size if isinstance(size, tuple) else (size, size)
    check_image_size(high, wide)
    count, channels, height, width = images.x.shape
    if (height, width) == (high, wide):
        return images
    out = torch.empty(count, channels, high, wide, dtype=torch.uint8, device=images.x.device)
    for start in range(0, count, _CHUNK):  # the float copy of a whole set would not fit where its bytes do
        out[start : start + _CHUNK] = resample(images.x[start : start + _CHUNK], (high, wide))
    return replace(images, x=out)


def resample(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Scale pixels (N, C, H, W) from 0 to 255: the one resampling of all data (docs/data.md).

    A side that shrinks is averaged over areas, then a side that grows is interpolated; the result is rounded.
    """
    height, width = x.shape[-2:]
    small = (min(height, size[0]), min(width, size[1]))
    x = x.float()
    x = x if small == (height, width) else interpolate(x, small, mode="area")
    x = x if small == size else interpolate(x, size, mode="bilinear", align_corners=False)
    return x.round_()


def balanced(y: Tensor, count: int, seed: int) -> Tensor:
    """Choose `count` samples at random, as evenly over the classes as possible; return their sorted places."""
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
    """The source's own validation split, if it has one."""
    drawn: int = 0
    """How many images at the end of `train` were drawn as validation when the source was packed."""
    where: str = ""
    """The files that hold them."""

    def cut(self) -> tuple[Images, Images]:
        """Return (train, the validation images that were drawn), without copying a pixel."""
        at = len(self.train) - self.drawn
        return self.train.part(0, at), self.train.part(at, len(self.train))
