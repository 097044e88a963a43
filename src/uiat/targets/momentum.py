"""Inverse adversary momentum (Eq. 8): p is averaged over epochs for each sample, from epoch T."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor, nn

from uiat.fields import SHARE, WEIGHT, require
from uiat.targets.memory import PredictionTable, TablePrecision
from uiat.targets.target import Target
from uiat.types import Clock, DataSpec, View


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

    def __init__(self, inner: Target, momentum: Momentum, data: DataSpec):
        super().__init__()
        self.inner, self.momentum = inner, momentum
        self.table = PredictionTable(data, momentum.precision)

    @property
    def remembers(self) -> bool:
        """Whether sample indices are needed: p is stored per sample."""
        return True

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
