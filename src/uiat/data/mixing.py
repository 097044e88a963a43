"""Cutout and CutMix, for a whole batch at once: windows that are blackened, or filled from another image."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from uiat.errors import UserError

Partner = Literal["any", "class"]


@dataclass(frozen=True)
class Mixing:
    """What is cut out of training images, and what is put there; all off by default."""

    cutout: int = 0
    """Side of the square that is blackened; 0 switches it off."""
    cutmix: float = 0.0
    """Probability that a window of an image is filled from another one; 0 switches it off."""
    partner: Partner = "any"
    """Where the filling comes from: any image of the batch, labels mixed by area, or one of the same class."""

    def __post_init__(self) -> None:
        if self.cutout < 0:
            raise UserError(f"data.cutout is {self.cutout}: give the side of a square in pixels, or 0 (off).")
        if not 0 <= self.cutmix <= 1:
            raise UserError(f"data.cutmix is {self.cutmix}: give a probability from 0 (off) to 1.")

    @property
    def mixes_labels(self) -> bool:
        """Whether a sample may belong to two classes."""
        return self.cutmix > 0 and self.partner == "any"


OFF = Mixing()


@dataclass(frozen=True, eq=False)
class Windows:
    """A window for each image: rows [top, bottom) and columns [left, right)."""

    top: Tensor
    bottom: Tensor
    left: Tensor
    right: Tensor

    def rows(self, which: Tensor) -> "Windows":
        """Return the windows of some of the images."""
        return Windows(self.top[which], self.bottom[which], self.left[which], self.right[which])

    def mask(self, height: int, width: int) -> Tensor:
        """Return which pixels lie within: (B, 1, H, W)."""
        down = torch.arange(height, device=self.top.device)
        across = torch.arange(width, device=self.top.device)
        tall = (down >= self.top[:, None]) & (down < self.bottom[:, None])
        wide = (across >= self.left[:, None]) & (across < self.right[:, None])
        return (tall[:, :, None] & wide[:, None, :])[:, None]

    def blacken(self, x: Tensor) -> Tensor:
        """Set the windows of images (B, C, H, W) to 0."""
        return x.masked_fill(self.mask(*x.shape[2:]), 0)


@dataclass(frozen=True, eq=False)
class CutMix:
    """Which image of the batch fills each image's window."""

    windows: Windows
    partner: Tensor
    """A place within the global batch."""

    def rows(self, which: Tensor) -> "CutMix":
        """Return this for some of the images."""
        return CutMix(self.windows.rows(which), self.partner[which])

    def __call__(self, x: Tensor, other: Tensor) -> Tensor:
        """Fill the windows of x from the partners' images."""
        return torch.where(self.windows.mask(*x.shape[2:]), other, x)

    def labels(self, y: Tensor, other: Tensor, shape: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
        """Return the class with the larger part of each image, and the shares of all classes, (B, classes)."""
        w = self.windows
        filled = ((w.bottom - w.top) * (w.right - w.left)).float() / (shape[-2] * shape[-1])
        shares = F.one_hot(y, classes) * (1 - filled)[:, None] + F.one_hot(other, classes) * filled[:, None]
        return torch.where(filled > 0.5, other, y), shares


def draw_cutout(
    count: int, side: int, shape: tuple[int, ...], key: torch.Generator, device: torch.device | str = "cpu"
) -> Windows:
    """Draw a square for each image, its centre anywhere, so that it may reach over the edge (DeVries & Taylor)."""
    return _windows(torch.full((count,), side), torch.full((count,), side), shape, key, device)


def draw_cutmix(y: Tensor, mixing: Mixing, shape: tuple[int, ...], key: torch.Generator) -> CutMix:
    """Draw windows of uniform area, their centres anywhere, and partners, for a batch with labels y (Yun et al.).

    Drawn on the CPU, so that every device gets the same. A partner of the same class may be the image itself, where the
    batch has no other.
    """
    count, height, width = len(y), shape[-2], shape[-1]
    side = torch.rand(count, generator=key).sqrt()  # the square root of the share that is filled: Beta(1, 1)
    applied = torch.rand(count, generator=key) < mixing.cutmix
    tall, wide = ((side * length).round().long() * applied for length in (height, width))
    windows = _windows(tall, wide, shape, key, y.device)
    shuffled = torch.randperm(count, generator=key).to(y.device)
    if mixing.partner == "any":
        return CutMix(windows, shuffled)
    grouped = shuffled[y[shuffled].argsort(stable=True)]  # by class, in random order within each
    label = y[grouped]
    first = torch.searchsorted(label, label)  # where each one's class begins
    last = torch.searchsorted(label, label, right=True) - 1
    here = torch.arange(count, device=y.device)
    partner = torch.empty_like(grouped)
    partner[grouped] = grouped[torch.where(here == last, first, here + 1)]
    return CutMix(windows, partner)


def _windows(
    tall: Tensor, wide: Tensor, shape: tuple[int, ...], key: torch.Generator, device: torch.device | str
) -> Windows:
    """Place windows of these sides with their centres anywhere in the image, and cut off what lies outside."""
    ends = []
    for length, side in ((shape[-2], tall), (shape[-1], wide)):
        start = torch.randint(0, length, (len(side),), generator=key) - side // 2
        ends += [start.clamp(0, length), (start + side).clamp(0, length)]
    return Windows(*torch.stack(ends).to(device))  # one transfer
