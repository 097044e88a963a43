"""Batched data augmentation: random crop, horizontal flip, rotation, CutMix and Cutout.

Random numbers are drawn on the CPU, so that they are the same for every device.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, eq=False)
class Augmentation:
    """The crop offset of each image in the padded image, and whether the image is flipped."""

    top: Tensor
    left: Tensor
    flip: Tensor

    def rows(self, which: Tensor) -> "Augmentation":
        """Return the augmentation of some of the images."""
        return Augmentation(self.top[which], self.left[which], self.flip[which])

    def __call__(self, x: Tensor, padding: int) -> Tensor:
        """Crop and flip images (B, C, H, W) with one gather from the padded batch."""
        count, channels, height, width = x.shape
        across = torch.arange(width, device=x.device)
        columns = torch.where(self.flip[:, None], across.flip(0), across) + self.left[:, None]
        rows = torch.arange(height, device=x.device) + self.top[:, None]
        place = (rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]).flatten(1)
        padded = pad(x, (padding,) * 4).flatten(2)
        return padded.gather(2, place[:, None].expand(-1, channels, -1)).view(count, channels, height, width)


def draw(
    count: int, padding: int, flip: bool, generator: torch.Generator, device: torch.device | str = "cpu"
) -> Augmentation:
    """Draw crops and flips; the crops do not depend on `flip`."""
    offsets = torch.randint(0, 2 * padding + 1, (2, count), generator=generator)
    mirrored = torch.randint(0, 2, (1, count), generator=generator) * flip
    top, left, coin = torch.cat([offsets, mirrored]).to(device)  # one transfer
    return Augmentation(top, left, coin.bool())


@dataclass(frozen=True, eq=False)
class Rotation:
    """An angle for each image, in radians and on the CPU; positive ones turn the image counter-clockwise."""

    angle: Tensor

    def rows(self, which: Tensor) -> "Rotation":
        """Return the rotation of some of the images."""
        return Rotation(self.angle[which.to(self.angle.device)])

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate images (B, C, H, W) about their centres, with nearest-neighbour sampling and zeros outside."""
        height, width = x.shape[2:]
        cos, sin = (part[:, None, None] for part in (self.angle.cos(), self.angle.sin()))
        down = (torch.arange(height, dtype=torch.float64) + 0.5 - height / 2)[:, None]
        across = torch.arange(width, dtype=torch.float64) + 0.5 - width / 2
        row = (sin * across + cos * down + height / 2).floor().long()
        column = (cos * across - sin * down + width / 2).floor().long()
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        place = torch.where(inside, row * width + column, height * width).flatten(1).to(x.device)
        padded = pad(x.flatten(2), (0, 1))  # the zero for pixels from outside
        return padded.gather(2, place[:, None].expand(-1, x.shape[1], -1)).view(x.shape)


def draw_rotation(count: int, degrees: float, key: torch.Generator) -> Rotation:
    """Draw uniform angles from −degrees to degrees."""
    angle = torch.rand(count, generator=key, dtype=torch.float64) * 2 - 1
    return Rotation(torch.deg2rad(angle * degrees))


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
        """Return a mask (B, 1, H, W) that is `True` inside the windows."""
        down = torch.arange(height, device=self.top.device)
        across = torch.arange(width, device=self.top.device)
        tall = (down >= self.top[:, None]) & (down < self.bottom[:, None])
        wide = (across >= self.left[:, None]) & (across < self.right[:, None])
        return (tall[:, :, None] & wide[:, None, :])[:, None]

    def fill(self, x: Tensor, other: Tensor | int) -> Tensor:
        """Return images (B, C, H, W) with the windows filled from other images, or with one value."""
        return torch.where(self.mask(*x.shape[2:]), other, x)


def draw_cutout(
    count: int, side: int, shape: tuple[int, ...], key: torch.Generator, device: torch.device | str = "cpu"
) -> Windows:
    """Draw a Cutout square for each image (DeVries & Taylor); its centre is uniform, so it may cross the border."""
    return _windows(torch.full((count,), side), torch.full((count,), side), shape, key, device)


def draw_cutmix(y: Tensor, probability: float, shape: tuple[int, ...], key: torch.Generator) -> tuple[Windows, Tensor]:
    """Draw CutMix (Yun et al.) within a class for a batch with labels y: (windows, partners).

    Areas and centres of the windows are uniform. The partner, an index in the batch, is another image of the same
    class, so that the label is unchanged, or the image itself if the batch has no other of its class.
    """
    count, height, width = len(y), shape[-2], shape[-1]
    side = torch.rand(count, generator=key).sqrt()  # the square root of the filled share, which is Beta(1, 1)
    applied = torch.rand(count, generator=key) < probability
    tall, wide = ((side * length).round().long() * applied for length in (height, width))
    windows = _windows(tall, wide, shape, key, y.device)
    shuffled = torch.randperm(count, generator=key).to(y.device)
    grouped = shuffled[y[shuffled].argsort(stable=True)]  # by class, in random order within each
    label = y[grouped]
    first = torch.searchsorted(label, label)  # where the class of each image begins
    last = torch.searchsorted(label, label, right=True) - 1
    here = torch.arange(count, device=y.device)
    partner = torch.empty_like(grouped)
    partner[grouped] = grouped[torch.where(here == last, first, here + 1)]
    return windows, partner


def _windows(
    tall: Tensor, wide: Tensor, shape: tuple[int, ...], key: torch.Generator, device: torch.device | str
) -> Windows:
    """Draw uniform centres for windows with these sides, and clip the windows to the image."""
    ends = []
    for length, side in ((shape[-2], tall), (shape[-1], wide)):
        start = torch.randint(0, length, (len(side),), generator=key) - side // 2
        ends += [start.clamp(0, length), (start + side).clamp(0, length)]
    return Windows(*torch.stack(ends).to(device))  # one transfer
