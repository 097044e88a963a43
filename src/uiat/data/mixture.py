"""Which samples a batch of original and generated images is made of: a plain function of the step."""

import torch
from torch import Tensor

from uiat.errors import UserError
from uiat.rng import generator


class Stream:
    """Samples 0 … size − 1, `share` of them a step, in pass after pass, each in an order of its own.

    A pass has every sample once. A batch in which one pass ends and the next begins has no sample twice.
    """

    def __init__(self, size: int, share: int, seed: int, purpose: str):
        self.size, self.share, self.seed, self.purpose = size, share, seed, purpose
        self._drawn: dict[int, Tensor] = {}

    def at(self, step: int) -> Tensor:
        """Return the samples of a step, counted from 0 over the whole run."""
        number, place = divmod(step * self.share, self.size)
        found = self._part(number, place, min(place + self.share, self.size))
        missing = self.share - len(found)
        return torch.cat([found, self._part(number + 1, 0, missing)]) if missing else found

    def _part(self, number: int, first: int, last: int) -> Tensor:
        """Return a part of the order of a pass: what the batch that it completes has already comes a little later."""
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

    Generated samples are counted on from the originals. The two kinds are spread evenly over a batch, so that the share
    of a process, or a micro-batch, holds them in proportion too.
    """

    def __init__(self, originals: int, generated: int, batch_size: int, original: float, seed: int):
        share = round(batch_size * original)
        for name, count, there in (("original", share, originals), ("generated", batch_size - share, generated)):
            if count < 1:
                raise UserError(
                    f"with data.generated.original {original:g} a batch of {batch_size} has no {name} images: "
                    "give a share between 0 and 1, or larger batches."
                )
            if 2 * count > there:
                raise UserError(
                    f"a batch of {batch_size} takes {count} {name} images, more than half of the {there} there are: "
                    "give a smaller train.batch_size."
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
