"""Batches of training images, in an order that depends only on (seed, epoch, step)."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from uiat.data.augment import draw, draw_cutmix, draw_cutout, draw_rotation
from uiat.data.images import Images, resize, to_unit
from uiat.distributed import rank, world
from uiat.errors import UserError
from uiat.rng import generator
from uiat.types import Batch

_T = TypeVar("_T")
_END = object()


class Loader:
    """Shuffled, augmented batches, in which every sample occurs once an epoch.

    With generated images, a share `original` of each batch are original ones, and an epoch has as many steps as without
    generated images. All batches are full, and passes over either kind of images continue across epochs. Generated
    images are not moved to the device as a whole, and may be memory-mapped.

    A last batch of one sample is merged into the batch before it, since BatchNorm needs two; so a batch has at most
    `batch_size + 1` samples.
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
        cutout: int = 0,
        cutmix: float = 0.0,
        rotation: float = 0.0,
    ) -> None:
        images.check("the training set")
        _check_batch_size(batch_size)
        side = min(images.x.shape[2:])
        if not 0 <= crop < side:
            raise UserError(f"data.crop is {crop}: give a padding from 0 (off) to {side - 1} for these images.")
        self.images = replace(images, x=images.x.to(device), y=images.y.to(device))
        self.batch_size, self.seed, self.device = batch_size, seed, device
        self.crop, self.flip, self.cutout, self.cutmix, self.rotation = crop, flip, cutout, cutmix, rotation
        self.generated = generated
        self.labels = self.images.y
        self.mixture: Mixture | None = None
        if generated is not None:
            self.labels = torch.cat([self.labels, generated.y.to(device)])
            self.mixture = Mixture(len(images), len(generated), batch_size, original, seed)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        full, left = divmod(len(self.images), self.batch_size)
        return max(1, full + (left > 1))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[int, Batch]]:
        """Yield (step, batch) from step `start` on; batches do not depend on earlier ones."""
        steps = self.steps_per_epoch
        if self.mixture is not None:
            for step in range(start, steps):
                yield step, self._batch(self.mixture.at((epoch - 1) * steps + step), epoch, step)
            return
        key = generator(self.seed, "order", epoch)
        order = torch.randperm(len(self.images), generator=key).to(self.device)
        for step in range(start, steps):
            first = step * self.batch_size
            last = first + self.batch_size if step + 1 < steps else len(order)
            yield step, self._batch(order[first:last], epoch, step)

    def _batch(self, index: Tensor, epoch: int, step: int) -> Batch:
        """Return this process's share of the global batch; the augmentation is drawn for the whole batch."""
        places = torch.arange(len(index), device=index.device)
        share = Batch(places, places, index).share(rank(), world())
        assert share.index is not None
        x = self._augmented(index, share.y, epoch, step)
        ours = share.index.to(self.device)
        x = self._cut(x, index, share.y.to(self.device), epoch, step)
        return replace(share, x=to_unit(x), y=self.labels[ours], index=ours)

    def _augmented(self, index: Tensor, places: Tensor, epoch: int, step: int) -> Tensor:
        """Return the cropped, flipped and rotated images at some positions of the global batch."""
        x = self._pixels(index[places.to(index.device)])
        if self.crop or self.flip:
            key = generator(self.seed, "augment", epoch, step)
            drawn = draw(len(index), self.crop, self.flip, key, self.device)
            x = drawn.rows(places.to(self.device))(x, self.crop)
        if self.rotation:
            key = generator(self.seed, "rotation", epoch, step)
            x = draw_rotation(len(index), self.rotation, key).rows(places)(x)
        return x

    def _pixels(self, index: Tensor) -> Tensor:
        if self.generated is None:
            return self.images.x[index]
        ours = index < len(self.images)
        x = torch.empty((len(index), *self.images.x.shape[1:]), dtype=torch.uint8, device=self.device)
        more = self.generated.take(index[~ours] - len(self.images))
        if more.x.shape[2:] != x.shape[2:]:
            more = resize(more, (x.shape[2], x.shape[3]))
        for kind, pixels in ((ours, self.images.x[index[ours].to(self.device)]), (~ours, more.x.to(self.device))):
            x[kind.nonzero().flatten().to(self.device)] = pixels
        return x

    def _cut(self, x: Tensor, index: Tensor, places: Tensor, epoch: int, step: int) -> Tensor:
        """Apply CutMix, then Cutout, to the images at some positions of the global batch."""
        shape = self.images.spec.shape
        if self.cutmix:
            key = generator(self.seed, "cutmix", epoch, step)
            windows, partner = draw_cutmix(self.labels[index.to(self.device)], self.cutmix, shape, key)
            x = windows.rows(places).fill(x, self._augmented(index, partner[places], epoch, step))
        if self.cutout:
            key = generator(self.seed, "cutout", epoch, step)
            x = draw_cutout(len(index), self.cutout, shape, key, self.device).rows(places).fill(x, 0)
        return x


class Stream:
    """Endless passes over the samples 0 … size − 1, each in another order, with `share` samples a step.

    A batch in which one pass ends and the next begins has no sample twice.
    """

    def __init__(self, size: int, share: int, seed: int, purpose: str):
        self.size, self.share, self.seed, self.purpose = size, share, seed, purpose
        self._drawn: dict[int, Tensor] = {}

    def at(self, step: int) -> Tensor:
        """Return the samples of a step, counted from 0 over the whole run."""
        number, place = divmod(step * self.share, self.size)
        samples = self._part(number, place, min(place + self.share, self.size))
        missing = self.share - len(samples)
        return torch.cat([samples, self._part(number + 1, 0, missing)]) if missing else samples

    def _part(self, number: int, first: int, last: int) -> Tensor:
        """Return the samples from `first` to `last` of a pass.

        Its first samples may complete a batch that the previous pass began; those that are in this batch already are
        moved back, so that no batch has a sample twice.
        """
        order, taken = self._draw(number), number * self.size % self.share
        if first >= self.share or not taken:
            return order[first:last]
        window = order[: self.share]
        twice = torch.isin(window, self._draw(number - 1)[-taken:])
        return torch.cat([window[~twice], window[twice], order[self.share : last]])[first:last]

    def _draw(self, number: int) -> Tensor:
        if number not in self._drawn:
            self._drawn = {kept: order for kept, order in self._drawn.items() if kept == number - 1}
            self._drawn[number] = torch.randperm(self.size, generator=generator(self.seed, self.purpose, number))
        return self._drawn[number]


class Mixture:
    """Batches with the same number of original and generated samples in each.

    The indices of generated samples follow those of the original ones. The two kinds are spread evenly over a batch, so
    that the share of a process and a micro-batch have the same proportions.
    """

    def __init__(self, originals: int, generated: int, batch_size: int, original: float, seed: int):
        share = round(batch_size * original)
        for name, count, available in (
            ("original", share, originals),
            ("generated", batch_size - share, generated),
        ):
            if count < 1:
                raise UserError(
                    f"with data.generated.original {original:g} a batch of {batch_size} has no {name} images: "
                    "give a share between 0 and 1, or larger batches."
                )
            if 2 * count > available:
                raise UserError(
                    f"a batch of {batch_size} takes {count} {name} images, more than half of the {available} "
                    "available: give a smaller train.batch_size."
                )
        self.originals = originals
        self._streams = (
            Stream(originals, share, seed, "original order"),
            Stream(generated, batch_size - share, seed, "generated order"),
        )
        steps = torch.arange(batch_size + 1) * share // batch_size
        self._is_original = steps.diff() > 0

    def at(self, step: int) -> Tensor:
        """Return the sample indices of a step, counted from 0 over the whole run; on the CPU."""
        index = torch.empty(len(self._is_original), dtype=torch.int64)
        index[self._is_original] = self._streams[0].at(step)
        index[~self._is_original] = self._streams[1].at(step) + self.originals
        return index


def plain(images: Images, batch_size: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """Yield batches of all images, in order and without augmentation."""
    _check_batch_size(batch_size)
    for start in range(0, len(images), batch_size):
        x = images.x[start : start + batch_size].to(device)
        y = images.y[start : start + batch_size].to(device)
        yield Batch(to_unit(x), y, torch.arange(start, start + len(y), device=device))


def prefetch(source: Iterator[_T]) -> Iterator[_T]:
    """Yield the items of an iterator, each of which a thread prepares while the caller uses the previous one.

    The items must not depend on what the caller does, as is true of batches with separate random generators.
    """
    with ThreadPoolExecutor(1, "next batch") as pool:
        waiting: Future[object] = pool.submit(next, source, _END)
        while (item := waiting.result()) is not _END:
            waiting = pool.submit(next, source, _END)
            yield item  # type: ignore[misc]


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise UserError(f"the batch size is {batch_size}: give at least 1.")
