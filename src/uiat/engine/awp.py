"""Adversarial weight perturbation (Wu et al., 2020)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from uiat.config import AWP
from uiat.distributed import all_reduce_sum, world
from uiat.engine.guards import StepSnapshot
from uiat.engine.state import State
from uiat.types import Clock, View


@contextmanager
def perturb_weights(state: State, views: Sequence[View], clock: Clock, awp: AWP) -> Iterator[None]:
    """Perturb the weights within the context; the original ones are restored bit by bit.

    The views are those of all micro-batches, after `craft` and `prepare`. A p without a gradient is computed here
    once, at the original weights, and kept in its view.
    """
    if not awp.acts(clock):
        yield
        return
    weights = _layers(state.model)
    gradients = _gradients(state, views, clock, weights)
    originals = [weight.detach().clone() for weight in weights]
    try:
        _ascend(weights, gradients, awp.size(state.method))
        yield
    finally:
        with torch.no_grad():
            for weight, copy in zip(weights, originals, strict=True):
                weight.copy_(copy)


def _layers(model: nn.Module) -> list[nn.Parameter]:
    """Return matrices and convolutions: biases and BatchNorm are not perturbed, as in the authors' code."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad and parameter.ndim > 1]


def _gradients(state: State, views: Sequence[View], clock: Clock, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradient of the whole batch's loss, of all processes, up to a positive factor."""
    sums = [torch.zeros_like(weight) for weight in weights]
    for view in views:
        fork, before = _fork(state, view, clock)
        with state.autocast():
            loss = state.method.loss(fork, clock).total * view.batch.count
        gradients = torch.autograd.grad(state.scaler.scale(loss), list(weights), allow_unused=True)
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


def _fork(state: State, view: View, clock: Clock) -> tuple[View, StepSnapshot]:
    """Return a copy of a view for the loss of the ascent, and a snapshot to restore after it.

    The ascent has no side effects: BatchNorm's running statistics and the table of p are restored. A p without a
    gradient is an exception: it is the p of the step, so the view keeps it, with what its forward changed.
    """
    fork, before = replace(view), StepSnapshot(state, view.batch)
    target = state.method.target
    if target is not None:
        with state.autocast():
            fork.log_p = target(fork, clock)
        if not fork.log_p.requires_grad:
            view.log_p, before = fork.log_p, StepSnapshot(state, view.batch)
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
