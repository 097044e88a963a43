"""A snapshot of what a training step changes before the update, to undo the step."""

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from uiat.distributed import gather
from uiat.methods.method import Method
from uiat.targets import PredictionTable, UniversalInverseTarget
from uiat.types import Batch

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class StepSnapshot:
    """A copy of what a step changes before the update: buffers of network and method (of large ones, some rows)."""

    def __init__(self, model: nn.Module, method: Method, batch: Batch):
        self.model, self.method = model, method
        self.buffers = {name: buffer.clone() for name, buffer in _small_buffers(model, method).items()}
        self.rows = [(buffer, where, buffer[where]) for buffer, where in _touched(method, batch)]
        self.versions = [(table, table.version) for table in _modules(method, PredictionTable)]

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the copied values."""
        now = _small_buffers(self.model, self.method)
        for name, buffer in self.buffers.items():
            now[name].copy_(buffer)
        for buffer, where, rows in self.rows:
            buffer[where] = rows
        for table, version in self.versions:
            table.version = version


def _modules(method: Method, kind: type[ModuleT]) -> list[ModuleT]:
    return [module for module in method.modules() if isinstance(module, kind)]


def _large_targets(method: Method) -> list[UniversalInverseTarget]:
    return [target for target in _modules(method, UniversalInverseTarget) if not target.has_few_classes]


def _touched(method: Method, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield large buffers with the rows that a step may change: those of the samples and classes of all processes."""
    tables, targets = _modules(method, PredictionTable), _large_targets(method)
    if tables and batch.index is not None:
        where = gather(batch.index[: batch.count])
        yield from ((buffer, where) for table in tables for buffer in (table.log_p, table.seen))
    if targets:
        where = gather(batch.y[: batch.count]).unique()
        yield from ((target.z, where) for target in targets)


def _small_buffers(model: nn.Module, method: Method) -> dict[str, Tensor]:
    large = {id(buffer) for table in _modules(method, PredictionTable) for buffer in (table.log_p, table.seen)}
    large |= {id(target.z) for target in _large_targets(method)}
    named = [*model.named_buffers("model"), *method.named_buffers("method")]
    return {name: buffer for name, buffer in named if id(buffer) not in large}
