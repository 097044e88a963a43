"""A snapshot of what a training step changes before the update, to undo the step."""

import torch
from torch import Tensor, nn

from uiat.distributed import gather
from uiat.methods.method import Method
from uiat.targets import PredictionTable, UniversalInverseTarget
from uiat.types import Batch


class StepSnapshot:
    """A copy of what a step changes before the update: buffers of network and method (of large ones, some rows)."""

    def __init__(self, model: nn.Module, method: Method, batch: Batch):
        self.model, self.method = model, method
        self.tables = [(part, part.version) for part in method.modules() if isinstance(part, PredictionTable)]
        self.rows = [(buffer, where, buffer[where]) for buffer, where in self._large(batch)]
        self.buffers = {name: buffer.clone() for name, buffer in self._named() if not self._has_rows(buffer)}

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the copied values."""
        for name, buffer in self._named():
            if name in self.buffers:
                buffer.copy_(self.buffers[name])
        for buffer, where, rows in self.rows:
            buffer[where] = rows
        for table, version in self.tables:
            table.version = version

    def _large(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Return large buffers with the rows that a step may change: those of the batch in all processes."""
        large: list[tuple[Tensor, Tensor]] = []
        if self.tables and batch.index is not None:
            where = gather(batch.index[: batch.count])
            large += [(buffer, where) for table, _ in self.tables for buffer in table.buffers()]
        targets = [part for part in self.method.modules() if isinstance(part, UniversalInverseTarget)]
        if any(not target.has_few_classes for target in targets):
            where = gather(batch.y[: batch.count]).unique()
            large += [(target.z, where) for target in targets]
        return large

    def _named(self) -> list[tuple[str, Tensor]]:
        return [*self.model.named_buffers("model"), *self.method.named_buffers("method")]

    def _has_rows(self, buffer: Tensor) -> bool:
        return any(buffer is large for large, _, _ in self.rows)
