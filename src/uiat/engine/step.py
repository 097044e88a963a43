"""One step of the optimiser, whole or in micro-batches."""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from uiat.config import AWP
from uiat.distributed import world
from uiat.engine.awp import perturb_weights
from uiat.engine.guards import Fault, StepSnapshot, find_fault
from uiat.engine.state import State
from uiat.evaluation.cascade import is_correct
from uiat.types import Batch, Clock, Loss

SETTLING = 20
"""Steps in a row that fp16's scaler may leave out: from its first scale, 2¹⁶, it takes 16 halvings to 1."""

NORM_LAYERS = (_NormBase, nn.LayerNorm, nn.GroupNorm)
"""Layers that normalise: BatchNorm and InstanceNorm are the first."""


def train_step(
    state: State,
    batch: Batch,
    clock: Clock,
    *,
    lr: float,
    momentum: float | None = None,
    micro_batch: int | None = None,
    undo: bool = False,
    awp: AWP | None = None,
) -> Fault | None:
    """Update the weights from one batch, or from this process's share of one.

    With `micro_batch` the batch goes through the network in parts, and still equals one step: every x̂ is crafted and z
    is updated from all parts before the first p is taken, and the gradients add up to the whole batch's mean. With
    `awp` they are taken at perturbed weights, and move the weights themselves.

    A loss or gradient that is not finite is returned, and the weights stay. The forwards have moved running statistics,
    z and the table of p by then; with `undo`, these are put back. In fp16 a gradient that overflows is no fault, but
    counted in `state.skipped`, until the scale cannot be its cause any more.
    """
    model, method, parallel = state.model, state.method, state.parallel
    before = StepSnapshot(state, batch) if undo else None
    model.train()
    parts = batch.split(micro_batch, world())
    with state.autocast():
        views = [method.craft(state.network, part, clock) for part in parts]
        method.prepare(state.network, views, clock)
    whole = len(batch) if batch.total is None else batch.total
    losses, correct = [], []
    with perturb_weights(state, views, clock, awp or AWP()):
        for part, view in zip(parts, views, strict=True):
            with parallel.no_sync(last=part is parts[-1]):
                with state.autocast():
                    loss = parallel.loss(view, clock)
                state.scaler.scale(loss.total * (part.count * world() / whole)).backward()
            logits = view.clean if method.attack is None else view.adversarial
            losses.append(Loss(loss.total.detach(), loss.parts))
            correct.append(is_correct(logits.detach(), part.y).sum())
    fault = find_fault(model, losses, views, clock, gradients=not state.scaler.is_enabled())
    moved = fault is None and _update(state, lr, momentum)
    if fault is None and not moved:
        fault = find_fault(model, losses, views, clock) if _is_stuck(state) else None
        state.skipped += fault is None  # `respond` counts a fault
    if moved:
        for part, part_loss, right in zip(parts, losses, correct, strict=True):
            state.meter.add(part_loss, right, part.count)
        parallel.average_buffers()
        if state.average is not None:
            state.average.update(model)
    elif before is not None:
        before.restore()
    elif fault is None:
        parallel.average_buffers()  # the forwards have moved each process's own statistics
    state.optimizer.zero_grad(set_to_none=True)
    return fault


def _update(state: State, lr: float, momentum: float | None) -> bool:
    """Move the weights, with SGD's momentum as it is unless one is given; return whether they moved.

    In fp16 a gradient may well be infinite: the scaler leaves the step out, and scales less from then on.
    """
    for group in state.optimizer.param_groups:
        group["lr"] = lr
        if momentum is not None:
            group["momentum"] = momentum
    before = state.scaler.get_scale()
    state.scaler.step(state.optimizer)
    state.scaler.update()
    moved = state.scaler.get_scale() >= before
    state.overflows = 0 if moved else state.overflows + 1
    return moved


def _is_stuck(state: State) -> bool:
    """Whether fp16's scale has been lowered so far, or so often, that it cannot be the cause of what is not finite."""
    return state.scaler.get_scale() < 1 or state.overflows > SETTLING


def make_optimizer(
    model: nn.Module, momentum: float, weight_decay: float, *, nesterov: bool = True, decay_norm: bool = True
) -> torch.optim.SGD:
    """Return SGD, with Nesterov momentum as in A.2 unless told otherwise; its rate is set at every step."""
    norms = {p for m in model.modules() if isinstance(m, NORM_LAYERS) for p in m.parameters(recurse=False)}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": trained}]
    if not decay_norm:
        groups = [{"params": [p for p in trained if p not in norms]}, {"params": [p for p in trained if p in norms]}]
    nesterov = nesterov and momentum > 0
    optimizer = torch.optim.SGD(groups, lr=0.0, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    for group in optimizer.param_groups[1:]:
        group["weight_decay"] = 0.0
    return optimizer
