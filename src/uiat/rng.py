"""Counter-based random streams, keyed by (seed, purpose, epoch, step).

Each draw has its own generator and is made for the global batch, then cut to the rows of this process or micro-batch.
A resumed run, another number of processes, gradient accumulation or an evaluation in between therefore does not change
any other draw.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def derive(seed: int, purpose: str, epoch: int = 0, step: int = 0) -> int:
    """Return the 63-bit seed of a key: equal keys give equal draws, different keys independent ones."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{epoch}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(
    seed: int, purpose: str, epoch: int = 0, step: int = 0, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return the generator of a key, on the device that will draw from it."""
    return torch.Generator(device).manual_seed(derive(seed, purpose, epoch, step))


@dataclass(frozen=True)
class Draws:
    """The random numbers of one step, for rows [start, start + len(x)) of a global batch of `total` rows."""

    seed: int = 0
    epoch: int = 0
    step: int = 0
    start: int = 0
    total: int | None = None
    """Rows of the global batch; `None`: as many as the tensor that is passed."""

    def normal(self, purpose: str, like: Tensor) -> Tensor:
        """Draw N(0, 1) in the shape of `like`."""
        key = generator(self.seed, purpose, self.epoch, self.step, like.device)
        return self._rows(torch.randn(self._shape(like), generator=key, device=like.device, dtype=like.dtype), like)

    def uniform(self, purpose: str, like: Tensor) -> Tensor:
        """Draw U(-1, 1) in the shape of `like`."""
        key = generator(self.seed, purpose, self.epoch, self.step, like.device)
        draw = torch.rand(self._shape(like), generator=key, device=like.device, dtype=like.dtype)
        return self._rows(draw.mul_(2).sub_(1), like)

    def _shape(self, like: Tensor) -> tuple[int, ...]:
        return (like.shape[0] if self.total is None else self.total, *like.shape[1:])

    def _rows(self, draw: Tensor, like: Tensor) -> Tensor:
        return draw[self.start : self.start + like.shape[0]]


@dataclass(frozen=True)
class SampleDraws(Draws):
    """Random numbers per sample instead of per batch, for evaluation.

    They depend only on the seed, the restart and the position of the sample in the data set, so neither the batch size
    nor other samples affect the result of a sample.
    """

    restart: int = 0
    index: tuple[int, ...] = ()
    """Position of each row's sample in the data set."""

    def normal(self, purpose: str, like: Tensor) -> Tensor:
        """Draw N(0, 1) for each row from the generator of its sample."""
        return self._each(torch.randn, purpose, like)

    def uniform(self, purpose: str, like: Tensor) -> Tensor:
        """Draw U(-1, 1) for each row from the generator of its sample."""
        return self._each(torch.rand, purpose, like).mul_(2).sub_(1)

    def _each(self, draw: Callable[..., Tensor], purpose: str, like: Tensor) -> Tensor:
        keys = [generator(self.seed, purpose, self.restart, place) for place in self.index]
        rows = [draw(like.shape[1:], generator=key, dtype=like.dtype) for key in keys]
        return torch.stack(rows).to(like.device)
