"""Trial runs of a network without side effects, and comparison of two networks."""

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from uiat.rng import generator
from uiat.types import DataSpec

LOGITS = 1e-4
"""Tolerance for equal logits, relative to the largest."""
GRADIENTS = 1e-2
"""Tolerance for equal gradients, relative to the norm."""


class Streams:
    """The states of the global random streams: torch's, Python's and NumPy's."""

    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self.python = random.getstate()
        self.numpy: Any = np.random.get_state()

    def restore(self) -> None:
        """Restore these states."""
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        random.setstate(self.python)
        np.random.set_state(self.numpy)

    def moved(self) -> bool:
        """Return whether a random number has been drawn from any of them since."""
        now = Streams()
        before, after = [self.torch, *self.cuda, *self.numpy], [now.torch, *now.cuda, *now.numpy]
        same = len(before) == len(after) and all(map(np.array_equal, before, after))
        return not same or self.python != now.python


@contextmanager
def untouched(model: nn.Module) -> Iterator[Streams]:
    """Restore on exit what forwards and backwards may change: random streams, modes, flags, tensors, attributes.

    It yields the states of the random streams at entry. Tensors keep their identity and their gradients. State outside
    the modules, or within lists, is not restored.
    """
    streams = Streams()
    tables: list[dict[str, Any]] = [t for m in model.modules() for t in (m.__dict__, m._parameters, m._buffers)]
    entries = [(table, dict(table)) for table in tables]
    tensors = [t for t in (*model.parameters(), *model.buffers()) if not is_lazy(t)]
    kept = [(t, t.detach().clone(), t.requires_grad, t.grad if t.is_leaf else None) for t in tensors]
    try:
        yield streams
    finally:
        for table, before in entries:
            table.clear()
            table.update(before)
        for tensor, value, flag, gradient in kept:
            if not torch.equal(tensor.detach(), value):
                tensor.data.copy_(value)
            if tensor.is_leaf:
                tensor.requires_grad_(flag)
                tensor.grad = gradient
        streams.restore()


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Return a context without TF32 in convolutions on a GPU, so that equivalent computations agree."""
    cudnn = torch.backends.cudnn
    if device.type != "cuda":
        return nullcontext()
    return cudnn.flags(
        enabled=cudnn.enabled, benchmark=cudnn.benchmark, deterministic=cudnn.deterministic, allow_tf32=False
    )


def logits_and_gradients(network: nn.Module, x: Tensor, parameters: Sequence[Tensor] = ()) -> list[Tensor]:
    """Return the logits, and the gradients of a weighted sum of them: for x, then for each of the parameters."""
    with torch.enable_grad():
        wanted = [x.detach().clone().requires_grad_(), *parameters]
        logits: Tensor = network(wanted[0])
        weights = torch.arange(1, logits[0].numel() + 1).to(logits).view_as(logits[0])
        raw = torch.autograd.grad((logits * weights).sum(), wanted, allow_unused=True)
    gradients = [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, raw, strict=True)]
    return [logits.detach(), *gradients]


def close(ours: Tensor, theirs: Tensor, tolerance: float = LOGITS) -> bool:
    """Return whether logits are equal up to rounding."""
    return bool((ours - theirs).abs().max() <= tolerance * theirs.abs().max().clamp(min=1e-12))


def agree(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    """Return whether logits and gradients of two networks are equal up to rounding."""
    largest = max(float(gradient.norm()) for gradient in theirs[1:])
    pairs = zip(ours[1:], theirs[1:], strict=True)
    steep = all(float((a - b).norm()) <= GRADIENTS * (float(b.norm()) + GRADIENTS * largest) for a, b in pairs)
    return steep and close(ours[0], theirs[0])


def trial_batch(data: DataSpec, device: torch.device) -> Tensor:
    """Return two samples of noise."""
    return torch.rand((2, *data.shape), generator=generator(0, "features")).to(device)
