"""Targets that remember predictions: momentum (Eq. 8) and the one-off strategy (Eq. S2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor, nn

from uiat.distributed import any_rank, gather
from uiat.errors import UserError
from uiat.fields import SHARE, WEIGHT, require
from uiat.targets.target import CleanTarget, Target
from uiat.types import Clock, DataSpec, View

TablePrecision = Literal["float32", "float16"]
"""Data type of the table: 4 or 2 bytes per number."""


class PredictionTable(nn.Module):
    """log p of each training sample (samples × classes), and a mask of the samples that have one."""

    log_p: Tensor
    """Stored log-probabilities: (samples, classes); rows of samples not seen yet are meaningless."""
    seen: Tensor
    """Whether a sample has a stored distribution: (samples,) of bool."""

    def __init__(self, data: DataSpec, precision: TablePrecision = "float32"):
        super().__init__()
        dtype = torch.float16 if precision == "float16" else torch.float32
        self.register_buffer("log_p", torch.zeros(data.num_samples, data.num_classes, dtype=dtype))
        self.register_buffer("seen", torch.zeros(data.num_samples, dtype=torch.bool))
        self.version = 0
        """Number of writes; a checkpoint saves the table only if it has changed."""

    def recall(self, view: View) -> tuple[Tensor, Tensor]:
        """Return the stored log p of the view's samples, and a (batch, 1) mask of those that have one."""
        index = _index(view)
        log_p = self.log_p[index]
        if log_p.dtype == torch.float16:  # after rounding, probabilities do not quite sum to 1
            log_p = log_p.float().log_softmax(dim=1)
        return log_p, self.seen[index, None]

    def store(self, view: View, log_p: Tensor) -> None:
        """Store log p for the samples of the view, in every process: another one may have them in the next epoch."""
        index = gather(_index(view)[: view.batch.count])
        # A probability too small for half precision counts as 0, but its logarithm must stay finite.
        kept = log_p.detach()[: view.batch.count].clamp(min=torch.finfo(self.log_p.dtype).min)
        self.log_p[index] = gather(kept.to(self.log_p.dtype))
        self.seen[index] = True
        self.version += 1


def _index(view: View) -> Tensor:
    if view.batch.index is None:
        raise UserError(
            "this target keeps a prediction for every sample, but the batch has no sample indices: "
            "give Batch(x, y, index), or disable momentum (momentum=Momentum(enabled=False))."
        )
    return view.batch.index


@dataclass(frozen=True)
class Momentum:
    """p⁽ᵗ⁾ = γ·p⁽ᵗ⁻¹⁾ + (1 − γ)·f(x̌) from epoch T; before it, p = f(x̌).

    >>> UIAT(momentum=Momentum(enabled=False)).momentum.enabled
    False
    """

    enabled: bool = True
    """Whether to average p (IAM of Table 6)."""
    gamma: float = 0.9
    """γ: weight of the previous p."""
    start: float = 0.75
    """T: first epoch with momentum; below 1, a fraction of the epochs."""
    precision: TablePrecision = "float32"
    """Data type of the table of log p; `float16` needs half the memory."""

    def __post_init__(self) -> None:
        require(self, gamma=SHARE, start=WEIGHT)


class MomentumTarget(Target):
    """Averages the predictions of another target over epochs."""

    remembers = True

    def __init__(self, inner: Target, momentum: Momentum, data: DataSpec):
        super().__init__()
        self.inner, self.momentum = inner, momentum
        self.table = PredictionTable(data, momentum.precision)

    def prepare(self, model: nn.Module, views: Sequence[View], clock: Clock) -> None:
        """Prepare the averaged target."""
        self.inner.prepare(model, views, clock)

    def forward(self, view: View, clock: Clock) -> Tensor:
        """Return log p⁽ᵗ⁾ (Eq. 8); a sample without a stored p gets its current prediction."""
        log_p: Tensor = self.inner(view, clock)
        begin = clock.epoch_at(self.momentum.start)
        if clock.epoch < begin - 1:
            return log_p
        if clock.epoch >= begin:
            before, seen = self.table.recall(view)
            log_p = torch.where(seen, _mix(before, log_p, self.momentum.gamma), log_p)
        self.table.store(view, log_p)
        return log_p


def _mix(before: Tensor, fresh: Tensor, gamma: float) -> Tensor:
    """Return log(γ·p + (1 − γ)·q) from log p and log q."""
    if gamma in (0, 1):
        return before if gamma else fresh
    return torch.logaddexp(before + log(gamma), fresh + log(1 - gamma))


@dataclass(frozen=True)
class OneOff:
    """p = f(x) before epoch T', f(x̌) at T', and the stored p afterwards.

    >>> UIATOneOff(one_off=OneOff(epoch=75)).one_off.epoch
    75
    """

    epoch: float = 0.8
    """T': the epoch with inverse adversarial examples; below 1, a fraction of the epochs."""
    detach_clean: bool = True
    """Whether no gradient flows through f(x) before T' (in MART it does)."""
    precision: TablePrecision = "float32"
    """Data type of the table of log p; `float16` needs half the memory."""

    def __post_init__(self) -> None:
        require(self, epoch=WEIGHT)


class OneOffTarget(Target):
    """Uses another target in a single epoch."""

    remembers = True

    def __init__(self, inner: Target, one_off: OneOff, data: DataSpec, *, running: bool = False):
        super().__init__()
        self.inner, self.one_off = inner, one_off
        self.before = CleanTarget(detach=one_off.detach_clean, running=running)
        self.table = PredictionTable(data, one_off.precision)
        self._checked_in, self._complete = 0, False

    def prepare(self, model: nn.Module, views: Sequence[View], clock: Clock) -> None:
        """Let the inverse target update z in epoch T'; z is frozen before and after."""
        if clock.epoch == clock.epoch_at(self.one_off.epoch):
            self.inner.prepare(model, views, clock)

    def forward(self, view: View, clock: Clock) -> Tensor:
        """Return log p for the epoch (Eq. S2)."""
        one_off_epoch = clock.epoch_at(self.one_off.epoch)
        if clock.epoch < one_off_epoch:
            return self.before(view, clock)  # type: ignore[no-any-return]
        if clock.epoch == one_off_epoch:
            log_p: Tensor = self.inner(view, clock)
        else:
            log_p, seen = self.table.recall(view)
            if self._all_seen(seen, clock):
                return log_p
            # Predict the whole batch, then select: the unseen samples would have other batch statistics.
            log_p = torch.where(seen, log_p, self.inner(view, clock))
        self.table.store(view, log_p)
        return log_p

    def _all_seen(self, seen: Tensor, clock: Clock) -> bool:
        # The whole table is checked once an epoch: if it is full, the steps need no check and no synchronisation.
        if self._checked_in != clock.epoch:
            self._checked_in, self._complete = clock.epoch, bool(self.table.seen.all())
        return self._complete or not any_rank(not bool(seen.all()))[0]
