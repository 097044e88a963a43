"""Adversarial weight perturbation (Wu et al., 2020)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from uiat.crafting import AcceleratedNetwork
from uiat.distributed import all_reduce_sum, world
from uiat.errors import UserError
from uiat.fields import SHARE
from uiat.methods.method import Method
from uiat.methods.step_snapshot import StepSnapshot
from uiat.types import Clock, View

Autocast = Callable[[], AbstractContextManager[object]]


@contextmanager
def perturb_weights(
    method: Method,
    views: Sequence[View],
    clock: Clock,
    *,
    gamma: float | None = None,
    scaler: torch.amp.GradScaler | None = None,
    autocast: Autocast = nullcontext,
) -> Iterator[None]:
    """Perturb the network's weights within the context: w + γ·‖w‖·g/‖g‖ for each layer, g being the loss's gradient.

    Compute the loss and its gradient in the context and step the optimiser after it: the original weights are restored
    bit by bit. The gradient g costs a further forward and backward pass, without side effects; a p without a gradient
    is computed once, at the original weights, and kept in its view.

    >>> clock = Clock(epoch=1, step=0, epochs=30)
    >>> method = TRADES().build(data)
    >>> view = method.craft(model, batch, clock)
    >>> method.prepare(model, [view], clock)
    >>> with perturb_weights(method, [view], clock):
    ...     method.loss(view, clock).total.backward()

    Args:
        method: the method, whose `craft` and `prepare` were called.
        views: the views of all micro-batches of the batch.
        clock: the time of the step.
        gamma: γ; `None` is 0.005 for methods with a target p (TRADES, UIAT …) and 0.01 for those without (SAT …).
        scaler: the gradient scaler of the loop, for fp16.
        autocast: returns the context in which the loss is computed, if the caller is not in it.
    """
    size = default_gamma(method) if gamma is None else gamma
    if size not in SHARE:
        raise UserError(f"gamma of the weight perturbation is {size}: give {SHARE.advice(size)}.")
    model = views[0].model
    model = model.original if isinstance(model, AcceleratedNetwork) else model
    weights = _layers(model)
    scale = torch.amp.GradScaler(enabled=False) if scaler is None else scaler
    gradients = _gradients(model, method, views, clock, weights, scale, autocast) if weights else []
    originals = [weight.detach().clone() for weight in weights]
    try:
        _ascend(weights, gradients, size)
        yield
    finally:
        with torch.no_grad():
            for weight, copy in zip(weights, originals, strict=True):
                weight.copy_(copy)


def default_gamma(method: Method) -> float:
    """Return γ of the authors' code: 0.01 in adversarial training, 0.005 in TRADES."""
    return 0.01 if method.target is None else 0.005


def _layers(model: nn.Module) -> list[nn.Parameter]:
    """Return matrices and convolutions: biases and BatchNorm are not perturbed, as in the authors' code."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad and parameter.ndim > 1]


def _gradients(
    model: nn.Module,
    method: Method,
    views: Sequence[View],
    clock: Clock,
    weights: Sequence[Tensor],
    scaler: torch.amp.GradScaler,
    autocast: Autocast,
) -> list[Tensor]:
    """Return the gradient of the whole batch's loss, of all processes, up to a positive factor."""
    sums = [torch.zeros_like(weight) for weight in weights]
    for view in views:
        fork, before = _fork(model, method, view, clock, autocast)
        with autocast():
            loss = method.loss(fork, clock).total * view.batch.count
        gradients = torch.autograd.grad(scaler.scale(loss), list(weights), allow_unused=True)
        before.restore()
        for summed, gradient in zip(sums, gradients, strict=True):
            if gradient is not None:
                summed += gradient
    if world() == 1:
        return sums
    flat = all_reduce_sum(torch.cat([summed.flatten() for summed in sums]))  # one all-reduce for all layers
    return [
        part.view_as(weight) for part, weight in zip(flat.split([w.numel() for w in weights]), weights, strict=True)
    ]


def _fork(model: nn.Module, method: Method, view: View, clock: Clock, autocast: Autocast) -> tuple[View, StepSnapshot]:
    """Return a copy of a view for the loss of the ascent, and a snapshot to restore after it.

    The ascent has no side effects: BatchNorm's running statistics and the table of p are restored. A p without a
    gradient is an exception: it is the p of the step, so the view keeps it, with what its forward changed.
    """
    fork, before = replace(view), StepSnapshot(model, method, view.batch)
    target = method.target
    if target is not None:
        with autocast():
            fork.log_p = target(fork, clock)
        if not fork.log_p.requires_grad:
            view.log_p, before = fork.log_p, StepSnapshot(model, method, view.batch)
    return fork, before


@torch.no_grad()
def _ascend(weights: Sequence[Tensor], gradients: Sequence[Tensor], gamma: float) -> None:
    """Move each layer by γ times its norm along its gradient; a gradient that is zero or not finite is ignored.

    If it is not finite, neither is the gradient of the loss, and the step is handled as without AWP.
    """
    for weight, gradient in zip(weights, gradients, strict=True):
        norm = gradient.norm()
        usable = norm.isfinite() & (norm > 0)
        scale = torch.where(usable, gamma * weight.norm() / norm, 0)
        weight += torch.where(usable, gradient, 0) * scale
