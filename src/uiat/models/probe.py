"""Trial runs of a network without side effects: checks before a run, and comparison of two networks."""

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from uiat.errors import UserError, first_line
from uiat.rng import generator
from uiat.types import DataSpec, check_logits

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


def network_name(config: object) -> str:
    """Return the name in messages of the network of a model configuration."""
    return f"the network {getattr(config, 'target', '') or type(config).__name__}"


def try_forward(model: nn.Module, x: Tensor, data: DataSpec, name: str) -> Tensor:
    """Return the logits of x; raise a `UserError` with the cause if the forward fails or returns no logits."""
    mode = "training" if model.training else "evaluation"
    try:
        output = model(x)
    except UserError:
        raise
    except Exception as error:  # a custom forward may raise anything
        raise UserError(
            f"{name} fails in {mode} mode on a batch of shape {tuple(x.shape)} ({first_line(error)}): "
            "let it take images of this size, or resize them with --data.size."
        ) from error
    return check_logits(output, len(x), data.num_classes, f"{name}, in {mode} mode,")


def try_network(model: nn.Module, config: object, data: DataSpec) -> None:
    """Raise a `UserError` that names why a network cannot be trained on this data, if it cannot.

    It is run in training and in evaluation mode, on two samples of noise of the shape of the data, on its device. Its
    weights, statistics and modes, and the global random streams, are restored afterwards.
    """
    name = network_name(config)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise UserError(f"{name} has no parameter to train: set requires_grad on those that training should change.")
    x = trial_batch(data, trained[0].device)
    with untouched(model), torch.enable_grad():
        for training in (False, True):
            model.train(training)
            _try_training(model, x.clone().requires_grad_(), data, name)


def _try_training(model: nn.Module, x: Tensor, data: DataSpec, name: str) -> None:
    logits = try_forward(model, x, data, name)
    if not bool(logits.isfinite().all()):
        raise UserError(f"{name} returns NaN or infinite logits before any training: check its forward and weights.")
    mode = "training" if model.training else "evaluation"
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = F.cross_entropy(logits.float(), torch.zeros(len(x), dtype=torch.long, device=logits.device))
    try:
        at_x, *others = torch.autograd.grad(loss, [x, *trained], allow_unused=True)
    except RuntimeError as error:
        raise UserError(
            f"the gradient of {name} fails in {mode} mode ({first_line(error)}): make its forward differentiable."
        ) from error
    for gradients, what in (([at_x], "its input, which an attack needs"), (others, "any of its parameters")):
        if all(gradient is None for gradient in gradients):
            raise UserError(f"the output of {name} has no gradient for {what}: do not detach it in the forward.")
