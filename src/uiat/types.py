"""The types that everything shares: the data's dimensions, a batch, the time, a loss, and a batch as a loss sees it."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, prod

import torch
from torch import Tensor, nn

from uiat.crafting import Crafting, crafting, loss_logits
from uiat.errors import UserError
from uiat.precision import to_float32
from uiat.rng import Draws


@dataclass(frozen=True)
class DataSpec:
    """What a method and a model need to know of the data before they see any of it.

    >>> DataSpec(num_classes=10, num_samples=50_000, shape=(3, 32, 32)).numel
    3072
    """

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
    """Samples x in [0, 1], their labels y, and which samples of the training set they are.

    >>> len(Batch(torch.rand(2, 3, 32, 32), y=torch.tensor([7, 1]), index=torch.tensor([40, 2])))
    2
    """

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
    """When a step happens. Epochs count from 1, as in everything a person sees.

    >>> clock = Clock(epoch=1, step=0, epochs=100)  # the first step of 100 epochs
    """

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


@dataclass(frozen=True)
class Loss:
    """A loss to call `backward` on, and the unweighted value of each of its terms.

    >>> loss = TRADES().build(data)(model, batch, Clock(epoch=1, step=0, epochs=30))
    >>> sorted(loss.parts)
    ['ce_clean', 'kl']
    """

    total: Tensor
    parts: dict[str, Tensor]


@dataclass
class View:
    """A (micro-)batch, its adversaries, and the network's predictions on them, each made at most once.

    Predictions are made in the mode the caller has set (normally `train`), so every one of them updates BatchNorm's
    running statistics. x, x̌ and x̂ are separate forwards, never one concatenated batch.
    """

    model: nn.Module
    batch: Batch
    x_adv: Tensor
    draws: Draws
    mode: Crafting
    """The mode in which x̂ was crafted and in which x̌ is."""
    gradient: Tensor | None = None
    """The gradient of cross-entropy at x, for each sample, where the attack took it and a term uses it (GradAlign)."""
    x_inv: Tensor | None = None
    """x̌, once a target has crafted it."""
    log_p: Tensor | None = None
    """The target distribution, once the method has asked for it."""
    classes: int | None = None
    """How many logits a sample must have; `None`: not known, and not checked."""

    def predict(self, x: Tensor, *, detach: bool, running: bool = False) -> Tensor:
        """Return log f(x), with no graph when the target is detached.

        With `running`, BatchNorm uses its running statistics, which stand still, and there is never a graph.
        """
        if running:
            with torch.no_grad(), crafting(self.model) as network:
                return to_float32(network(x)).log_softmax(dim=1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
            log_p = self.logits(x).log_softmax(dim=1)
        if detach:  # torch 2.5 would reuse weights that autocast has cast without a graph, and not train them
            torch.clear_autocast_cache()
        return log_p

    def logits(self, x: Tensor) -> Tensor:
        """Return f(x), compiled if the model is, in at least float32."""
        output = loss_logits(self.model, x)
        return to_float32(output if self.classes is None else check_logits(output, len(x), self.classes))

    @cached_property
    def clean(self) -> Tensor:
        """Logits f(x), with a graph."""
        return self.logits(self.batch.x)

    @cached_property
    def adversarial(self) -> Tensor:
        """Logits f(x̂), with a graph."""
        return self.logits(self.x_adv)


def check_logits(output: object, samples: int, classes: int, network: str = "the model") -> Tensor:
    """Return the output of a network if it is logits; else raise a `UserError` that names the mistake."""
    if not isinstance(output, Tensor):
        held = f" of {len(output)}" if isinstance(output, tuple | list | dict) else ""
        wrong = f"a {type(output).__name__}{held}, not a tensor"
        inside = " (its .logits, as uiat.logits_of does)" if hasattr(output, "logits") else ""
        advice = f"return the logits alone{inside}"
    elif output.shape == (samples, classes):
        return output
    else:
        wrong = f"a tensor of shape {tuple(output.shape)} for {samples} samples of {classes} classes"
        advice = f"return one row a sample and one logit a class, ({samples}, {classes})"
        if output.ndim == 2 and len(output) == samples:
            wrong = f"{output.shape[1]} logits a sample, but the data has {classes} classes"
            advice = f"give its last layer {classes} outputs"
    raise UserError(f"{network} returns {wrong}: {advice}.")
