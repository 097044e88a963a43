"""Batches from images that live on the device, in an order that depends on nothing but (seed, epoch)."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from uiat.data.augment import draw
from uiat.data.images import Images, resize
from uiat.data.mixture import Mixture
from uiat.distributed import rank, world
from uiat.errors import UserError
from uiat.rng import generator
from uiat.types import Batch


class Loader:
    """Shuffled, augmented batches; every sample once an epoch.

    With generated images, a batch has the share `original` of original ones, and an epoch as many steps as these alone
    would take; all batches are full then, and either kind goes through passes of its own, across the ends of epochs.
    Generated images stay where they are, mapped from the disk perhaps; only a batch of them goes to the device.

    A last batch of one joins the batch before it, since BatchNorm cannot learn from one sample; so a batch
    has at most `batch_size + 1` samples.
    """

    def __init__(
        self,
        images: Images,
        batch_size: int,
        seed: int,
        crop: int = 0,
        flip: bool = False,
        device: torch.device | str = "cpu",
        generated: Images | None = None,
        original: float = 0.3,
    ) -> None:
        images.check("the training set")
        _check_batch_size(batch_size)
        side = min(images.x.shape[2:])
        if not 0 <= crop < side:
            raise UserError(f"data.crop is {crop}: give a padding from 0 (off) to {side - 1} for these images.")
        self.images = replace(images, x=images.x.to(device), y=images.y.to(device))
        self.batch_size = batch_size
        self.seed = seed
        self.crop = crop
        self.flip = flip
        self.device = device
        self.generated = generated
        self.labels = self.images.y
        self.mixture: Mixture | None = None
        if generated is not None:
            self.labels = torch.cat([self.labels, generated.y.to(device)])
            self.mixture = Mixture(len(images), len(generated), batch_size, original, seed)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch."""
        full, left = divmod(len(self.images), self.batch_size)
        return max(1, full + (left > 1))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[int, Batch]]:
        """Yield (step, batch) from step `start` on; earlier steps change nothing in later ones."""
        if self.mixture is not None:
            for step in range(start, self.steps_per_epoch):
                index = self.mixture.at((epoch - 1) * self.steps_per_epoch + step)
                yield step, self._batch(index, epoch, step)
            return
        key = generator(self.seed, "order", epoch)
        order = torch.randperm(len(self.images), generator=key).to(self.device)
        steps = self.steps_per_epoch
        for step in range(start, steps):
            first = step * self.batch_size
            last = first + self.batch_size if step + 1 < steps else len(order)
            yield step, self._batch(order[first:last], epoch, step)

    def _batch(self, index: Tensor, epoch: int, step: int) -> Batch:
        """Return this process's share of the global batch; augmentation is drawn for all of it."""
        places = torch.arange(len(index), device=index.device)
        share = Batch(places, places, index).share(rank(), world())
        assert share.index is not None
        x = self._pixels(share.index)
        share = replace(share, y=share.y.to(self.device), index=share.index.to(self.device))
        if self.crop or self.flip:
            key = generator(self.seed, "augment", epoch, step)
            x = draw(len(index), self.crop, self.flip, key, self.device).rows(share.y)(x, self.crop)
        return replace(share, x=_unit(x), y=self.labels[share.index])

    def _pixels(self, index: Tensor) -> Tensor:
        if self.generated is None:
            return self.images.x[index]
        ours = index < len(self.images)
        x = torch.empty((len(index), *self.images.x.shape[1:]), dtype=torch.uint8, device=self.device)
        more = self.generated.take(index[~ours] - len(self.images))
        if more.x.shape[2:] != x.shape[2:]:
            more = resize(more, x.shape[2])
        for kind, pixels in ((ours, self.images.x[index[ours].to(self.device)]), (~ours, more.x.to(self.device))):
            x[kind.nonzero().flatten().to(self.device)] = pixels
        return x


def plain(images: Images, batch_size: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """Yield all images in their order, as they are: for evaluation."""
    _check_batch_size(batch_size)
    for start in range(0, len(images), batch_size):
        x = images.x[start : start + batch_size].to(device)
        y = images.y[start : start + batch_size].to(device)
        yield Batch(_unit(x), y, torch.arange(start, start + len(y), device=device))


def _unit(x: Tensor) -> Tensor:
    return x.float().div_(255)


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise UserError(f"the batch size is {batch_size}: give at least 1.")
