"""The one-off strategy (Eq. S2): inverse adversaries in a single epoch T', their predictions kept ever after."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from uiat.distributed import any_rank
from uiat.fields import WEIGHT, require
from uiat.targets.clean import CleanTarget
from uiat.targets.memory import PredictionTable, TablePrecision
from uiat.targets.target import Target
from uiat.types import Clock, DataSpec, View


@dataclass(frozen=True)
class OneOff:
    """p = f(x) before epoch T', f(x̌) at T', and the stored p afterwards.

    >>> UIATOneOff(one_off=OneOff(epoch=75)).one_off.epoch
    75
    """

    epoch: float = 0.8
    """T': the epoch that makes inverse adversaries; below 1, a fraction of the epochs."""
    detach_clean: bool = True
    """Whether no gradient flows through f(x) before T' (MART lets it flow)."""
    precision: TablePrecision = "float32"
    """How the table keeps log p; `float16` is half the memory."""

    def __post_init__(self) -> None:
        require(self, epoch=WEIGHT)


class OneOffTarget(Target):
    """Runs another target in one epoch only."""

    def __init__(self, inner: Target, one_off: OneOff, data: DataSpec, *, running: bool = False):
        super().__init__()
        self.inner, self.one_off = inner, one_off
        self.before = CleanTarget(detach=one_off.detach_clean, running=running)
        self.table = PredictionTable(data, one_off.precision)
        self._checked_in, self._complete = 0, False

    @property
    def remembers(self) -> bool:
        """Needs sample indices: stores p per sample, from epoch T' on."""
        return True

    def prepare(self, model: nn.Module, views: Sequence[View], clock: Clock) -> None:
        """Let the inverse target update its z in epoch T'; z is frozen before and after."""
        if clock.epoch == clock.epoch_at(self.one_off.epoch):
            self.inner.prepare(model, views, clock)

    def forward(self, view: View, clock: Clock) -> Tensor:
        """Return log p for the epoch (Eq. S2)."""
        moment = clock.epoch_at(self.one_off.epoch)
        if clock.epoch < moment:
            return self.before(view, clock)  # type: ignore[no-any-return]
        if clock.epoch == moment:
            log_p: Tensor = self.inner(view, clock)
        else:
            log_p, seen = self.table.recall(view)
            if self._all_seen(seen, clock):
                return log_p
            # The whole batch, then a choice: the unseen ones alone would have other batch statistics.
            log_p = torch.where(seen, log_p, self.inner(view, clock))
        self.table.store(view, log_p)
        return log_p

    def _all_seen(self, seen: Tensor, clock: Clock) -> bool:
        # Asked of the whole table once an epoch: a full table then spares every step a look and a synchronisation.
        if self._checked_in != clock.epoch:
            self._checked_in, self._complete = clock.epoch, bool(self.table.seen.all())
        return self._complete or not any_rank(not bool(seen.all()))[0]
