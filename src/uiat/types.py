"""Shared types: data dimensions, batch, clock, loss, and the view of a batch from which losses are computed."""

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
    """Dimensions of a data set, from which methods and models are built.

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
        """Number of values in a sample."""
        return prod(self.shape)


@dataclass(frozen=True)
class Batch:
    """Samples x in [0, 1], their labels y, and their indices in the training set.

    Labels are classes, (N,) of int64. Most methods also take soft labels, (N, classes) of floats: a probability for
    each class, as MixUp, CutMix and label smoothing give.

    >>> len(Batch(torch.rand(2, 3, 32, 32), y=torch.tensor([7, 1]), index=torch.tensor([40, 2])))
    2
    """

    x: Tensor
    y: Tensor
    index: Tensor | None = None
    """Position of each sample in the training set; needed only by targets that keep per-sample predictions."""
    start: int = 0
    """First row of this batch in the global batch, if it is a share of one (of a process, or a micro-batch)."""
    total: int | None = None
    """Rows of the global batch; `None`: this is the global batch."""
    padding: bool = False
    """Whether the rows are padding for an empty share of a process; they do not count."""

    @property
    def count(self) -> int:
        """Number of samples without padding."""
        return 0 if self.padding else len(self)

    @property
    def has_soft_labels(self) -> bool:
        """Whether labels are probabilities of the classes, not classes."""
        return self.y.is_floating_point()

    def __len__(self) -> int:
        return len(self.y)

    def share(self, rank: int, world: int) -> "Batch":
        """Return a process's share of a global batch: nearly equal parts, in the order of the ranks."""
        return self._cut(world)[rank] if world > 1 else self

    def split(self, size: int | None, world: int = 1) -> list["Batch"]:
        """Split into nearly equal micro-batches of at most `size` rows (for gradient accumulation).

        All of the `world` processes get as many as the one with the largest share needs.
        """
        rows = len(self) if world == 1 or self.total is None else ceil(self.total / world)
        count = 1 if size is None else ceil(rows / size)
        return self._cut(count) if count > 1 else [self]

    def _cut(self, count: int) -> list["Batch"]:
        total, parts, start = len(self) if self.total is None else self.total, [], self.start
        for rows in torch.arange(len(self), device=self.y.device).tensor_split(count):
            # An empty part is one padding row: its process makes the same calls as the others.
            kept = rows if len(rows) else torch.zeros(1, dtype=torch.long, device=self.y.device)
            index = None if self.index is None else self.index[kept]
            empty = self.padding or not len(rows)
            first = 0 if empty else start
            parts.append(Batch(self.x[kept], self.y[kept], index, first, total, padding=empty))
            start += len(rows)
        return parts


@dataclass(frozen=True)
class Clock:
    """The time of a step: epochs count from 1, steps within an epoch from 0.

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
        """Return an epoch: 75 is epoch 75, 0.75 is that fraction of the run (rounded down, at least 1)."""
        return int(when) if when >= 1 else max(1, floor(when * self.epochs + 1e-9))


@dataclass(frozen=True)
class Loss:
    """A loss to call `backward` on, the value of each of its terms, and the adversarial examples it is computed from.

    All but `total` are without a graph, and aligned with the rows of the (micro-)batch.

    >>> loss = TRADES().build(data)(model, batch, Clock(epoch=1, step=0, epochs=30))
    >>> sorted(loss.parts)
    ['ce_clean', 'kl']
    >>> robust_accuracy = (loss.logits_adv.argmax(dim=1) == batch.y).float().mean()  # on the training batch
    """

    total: Tensor
    parts: dict[str, Tensor]
    """The value of each term, before it is weighted."""
    x_adv: Tensor | None = None
    """x̂; `None` for methods without an attack (natural training)."""
    logits_adv: Tensor | None = None
    """f(x̂) in the mode in which the loss is computed; `None` without x̂, and if no term of the method needs f(x̂)."""


@dataclass
class View:
    """A (micro-)batch, its adversarial examples, and the network's predictions on them, each computed at most once.

    Predictions are computed in the mode that the caller has set (normally `train`), so each of them updates BatchNorm's
    running statistics. x, x̌ and x̂ are separate forwards, never a concatenated batch.
    """

    model: nn.Module
    batch: Batch
    x_adv: Tensor
    draws: Draws
    mode: Crafting
    """The crafting mode of x̂ and x̌."""
    gradient: Tensor | None = None
    """The gradient of cross-entropy at x, for each sample, if the attack computed it and a term uses it (GradAlign)."""
    x_inv: Tensor | None = None
    """x̌, once a target has crafted it."""
    log_p: Tensor | None = None
    """log p, once the target has computed it."""
    classes: int | None = None
    """Number of logits per sample; `None`: not checked."""

    def predict(self, x: Tensor, *, detach: bool, running: bool = False) -> Tensor:
        """Return log f(x), without a graph if `detach` is set.

        With `running`, BatchNorm uses its running statistics without updating them, and there is never a graph.
        """
        if running:
            with torch.no_grad(), crafting(self.model) as network:
                return to_float32(network(x)).log_softmax(dim=1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
            log_p = self.logits(x).log_softmax(dim=1)
        if detach:  # torch 2.5 would reuse weights that were cast without a graph, and not train them
            torch.clear_autocast_cache()
        return log_p

    def logits(self, x: Tensor) -> Tensor:
        """Return f(x) in at least float32, from the compiled forward if there is one."""
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
    """Return the output of a network if it is logits; else raise a `UserError` that describes the mistake."""
    if not isinstance(output, Tensor):
        held = f" of {len(output)}" if isinstance(output, tuple | list | dict) else ""
        wrong = f"a {type(output).__name__}{held}, not a tensor"
        inside = " (its .logits, as uiat.logits_of does)" if hasattr(output, "logits") else ""
        advice = f"return only the logits{inside}"
    elif output.shape == (samples, classes):
        return output
    else:
        wrong = f"a tensor of shape {tuple(output.shape)} for {samples} samples of {classes} classes"
        advice = f"return one row per sample and one logit per class, ({samples}, {classes})"
        if output.ndim == 2 and len(output) == samples:
            wrong = f"{output.shape[1]} logits a sample, but the data has {classes} classes"
            advice = f"give its last layer {classes} outputs"
    raise UserError(f"{network} returns {wrong}: {advice}.")
