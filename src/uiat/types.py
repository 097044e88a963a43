"""The nouns that everything shares: a batch, the time, a loss, and what the data looks like."""

from dataclasses import dataclass, replace
from math import ceil, floor, prod

import torch
from torch import Tensor

from uiat.errors import UserError


@dataclass(frozen=True)
class DataSpec:
    """What a method and a model need to know of the data before they see any of it."""

    num_classes: int
    num_samples: int
    """Training samples; sample indices are 0 … num_samples − 1."""
    shape: tuple[int, ...]
    """Shape of one sample, without the batch dimension; (channels, height, width) for images."""

    @property
    def numel(self) -> int:
        """Numbers in one sample."""
        return prod(self.shape)


@dataclass(frozen=True)
class Batch:
    """Samples x in [0, 1], their labels y, and which samples of the training set they are."""

    x: Tensor
    y: Tensor
    index: Tensor | None = None
    """Position of each sample in the training set; needed only by targets that remember per-sample predictions."""
    start: int = 0
    """First row of this batch within the global batch, when it is a share of one (a process's, or a micro-batch)."""
    total: int | None = None
    """Rows of the global batch; `None` when this is all of it."""
    padding: bool = False
    """Whether the rows only stand in for an empty share (a process without one): they count for nothing."""

    @property
    def count(self) -> int:
        """Samples that count."""
        return 0 if self.padding else len(self)

    def __len__(self) -> int:
        return len(self.y)

    def share(self, rank: int, world: int) -> "Batch":
        """Return a process's part of a global batch: nearly equal parts, in the order of the ranks."""
        return self._cut(world)[rank] if world > 1 else self

    def split(self, size: int | None, world: int = 1) -> list["Batch"]:
        """Cut into nearly equal micro-batches of at most `size` rows (for gradient accumulation).

        Of `world` processes all make as many as the one with the largest share needs, so that they stay in step.
        """
        rows = len(self) if world == 1 or self.total is None else ceil(self.total / world)
        count = 1 if size is None else ceil(rows / size)
        return self._cut(count) if count > 1 else [self]

    def _cut(self, count: int) -> list["Batch"]:
        total, parts, start = len(self) if self.total is None else self.total, [], self.start
        for rows in torch.arange(len(self), device=self.y.device).tensor_split(count):
            # An empty part is one row that counts for nothing: it keeps its process in step with the others.
            kept = rows if len(rows) else torch.zeros(1, dtype=torch.long, device=self.y.device)
            index = None if self.index is None else self.index[kept]
            empty = self.padding or not len(rows)
            first = 0 if empty else start
            parts.append(Batch(self.x[kept], self.y[kept], index, first, total, padding=empty))
            start += len(rows)
        return parts


@dataclass(frozen=True)
class Clock:
    """When a step happens. Epochs count from 1, as in everything a person sees."""

    epoch: int
    step: int
    epochs: int

    def __post_init__(self) -> None:
        if not 1 <= self.epoch <= self.epochs:
            raise UserError(
                f"the clock is in epoch {self.epoch} of {self.epochs}: epochs count from 1 to the planned total."
            )
        if self.step < 0:
            raise UserError(f"the clock is at step {self.step}: steps count from 0 within each epoch.")

    def epoch_at(self, when: float) -> int:
        """Turn a moment into an epoch: 75 is epoch 75, 0.75 is that fraction of the run (rounded down, at least 1)."""
        return int(when) if when >= 1 else max(1, floor(when * self.epochs + 1e-9))

    def at_epoch(self, epoch: int) -> "Clock":
        """Return the same clock at another epoch."""
        return replace(self, epoch=epoch)


@dataclass(frozen=True)
class Loss:
    """A loss to call `backward` on, and the unweighted value of each of its terms."""

    total: Tensor
    parts: dict[str, Tensor]
