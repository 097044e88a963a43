"""The one-off strategy (Eq. S2): inverse adversarial examples in a single epoch T', whose predictions are kept."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from uiat.distributed import any_rank
from uiat.fields import WEIGHT, require
from uiat.targets.memory import PredictionTable, TablePrecision
from uiat.targets.target import CleanTarget, Target
from uiat.types import Clock, DataSpec, View


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

    def __init__(self, inner: Target, one_off: OneOff, data: DataSpec, *, running: bool = False):
        super().__init__()
        self.inner, self.one_off = inner, one_off
        self.before = CleanTarget(detach=one_off.detach_clean, running=running)
        self.table = PredictionTable(data, one_off.precision)
        self._checked_in, self._complete = 0, False

    @property
    def remembers(self) -> bool:
        """Whether sample indices are needed: p is stored per sample from epoch T'."""
        return True

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
