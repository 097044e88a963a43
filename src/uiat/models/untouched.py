"""Running anyone's network on trial, and leaving no trace of it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy


class Streams:
    """The global random streams as they are now: torch's, Python's and NumPy's."""

    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self.python = random.getstate()
        self.numpy: Any = np.random.get_state()

    def restore(self) -> None:
        """Go back to them."""
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        random.setstate(self.python)
        np.random.set_state(self.numpy)

    def moved(self) -> bool:
        """Whether anybody has drawn from them since."""
        now = Streams()
        ours, theirs = [self.torch, *self.cuda], [now.torch, *now.cuda]
        if len(ours) != len(theirs) or not all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)):
            return True
        numpy = all(np.array_equal(a, b) for a, b in zip(self.numpy, now.numpy, strict=True))
        return self.python != now.python or not numpy


@contextmanager
def untouched(model: nn.Module) -> Iterator[Streams]:
    """Put back what forwards and backwards may change: streams, modes, flags, weights, statistics, attributes.

    Tensors keep their identity, and so do their gradients. What the model keeps outside its modules, or within a list
    of its own, is not seen.
    """
    streams = Streams()
    modules = [(m, dict(m.__dict__), dict(m._parameters), dict(m._buffers)) for m in model.modules()]
    tensors = [t for t in (*model.parameters(), *model.buffers()) if not is_lazy(t)]
    kept = [(t, t.detach().clone(), t.requires_grad, t.grad if t.is_leaf else None) for t in tensors]
    try:
        yield streams
    finally:
        for module, attributes, parameters, buffers in modules:
            for name in set(module.__dict__) - set(attributes):
                del module.__dict__[name]
            module.__dict__.update(attributes)
            module._parameters.clear()
            module._parameters.update(parameters)
            module._buffers.clear()
            module._buffers.update(buffers)
        for tensor, value, flag, gradient in kept:
            if not torch.equal(tensor.detach(), value):
                tensor.data.copy_(value)
            if tensor.is_leaf:
                tensor.requires_grad_(flag)
                tensor.grad = gradient
        streams.restore()


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Within it, a GPU's convolutions do not round to TF32: two ways to compute the same then agree."""
    if device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    with cudnn.flags(
        enabled=cudnn.enabled, benchmark=cudnn.benchmark, deterministic=cudnn.deterministic, allow_tf32=False
    ):
        yield
