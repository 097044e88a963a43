"""A step on several processes: the loss under DistributedDataParallel, and what must stay equal afterwards."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from uiat.distributed import average, world
from uiat.methods import Method
from uiat.types import Clock, Loss, View


class LossOf(nn.Module):
    """Computes a method's loss as one forward, which is what DistributedDataParallel can wrap.

    It wraps the loss, not the network: several forwards of a wrapped network before one backward would each be prepared
    for a backward of their own. The method is no part of the module, so that its state is not broadcast.
    """

    def __init__(self, model: nn.Module, method: Method):
        super().__init__()
        self.model = model
        self._method = (method,)

    def forward(self, view: View, clock: Clock) -> Loss:
        """Return the loss of a (micro-)batch."""
        return self._method[0].loss(view, clock)


class Parallel:
    """The loss of one process's share, with gradients averaged over processes in its backward."""

    def __init__(self, model: nn.Module, method: Method):
        self.model = model
        self.loss: Callable[[View, Clock], Loss] = method.loss
        self._wrapped: DistributedDataParallel | None = None
        if world() > 1:
            self._wrapped = DistributedDataParallel(LossOf(model, method), forward_sync_buffers=False)
            self.loss = self._wrapped

    def quiet(self, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients only in the last micro-batch's backward."""
        return nullcontext() if last or self._wrapped is None else self._wrapped.no_sync()

    def average_buffers(self) -> None:
        """Average BatchNorm's running statistics: then all processes are equal again, at every step.

        A checkpoint made at any moment therefore belongs to no process, and examples are crafted against one network.
        """
        average(list(self.model.buffers()))
