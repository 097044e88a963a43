"""The nouns that everything shares: a batch, the time, a loss, and what the data looks like."""

from dataclasses import dataclass, replace
from math import ceil, floor, prod

from torch import Tensor


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

    def __len__(self) -> int:
        return len(self.y)

    def split(self, size: int | None) -> list["Batch"]:
        """Cut into nearly equal micro-batches of at most `size` rows (for gradient accumulation)."""
        count = 1 if size is None else ceil(len(self) / size)
        if count <= 1:
            return [self]
        total = len(self) if self.total is None else self.total
        x, y = self.x.tensor_split(count), self.y.tensor_split(count)
        index = [None] * count if self.index is None else list(self.index.tensor_split(count))
        starts = [self.start + sum(len(part) for part in y[:k]) for k in range(count)]
        return [Batch(x[k], y[k], index[k], starts[k], total) for k in range(count)]


@dataclass(frozen=True)
class Clock:
    """When a step happens. Epochs count from 1, as in everything a person sees."""

    epoch: int
    step: int
    epochs: int

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
