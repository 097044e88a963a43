"""A training step, in one batch or in micro-batches."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from uiat.config import AWP, OptimizerName
from uiat.distributed import world
from uiat.engine.guards import Fault, find_fault
from uiat.engine.state import State
from uiat.evaluation.cascade import is_correct
from uiat.methods.step_snapshot import StepSnapshot
from uiat.methods.weight_perturbation import perturb_weights
from uiat.types import Batch, Clock, Loss, View

SETTLING = 20
"""Consecutive steps that the fp16 scaler may skip: from its first scale, 2¹⁶, it takes 16 halvings to 1."""

ADAM_BETA2 = 0.999
"""β₂ of AdamW, torch's default."""
NORM_LAYERS = (_NormBase, nn.LayerNorm, nn.GroupNorm)
"""Normalisation layers; `_NormBase` is the base of BatchNorm and InstanceNorm."""


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
    """Update the weights from a batch, or from this process's share of one.

    With `micro_batch` the batch is processed in parts, and the result is still that of one step: every x̂ is crafted and
    z is updated from all parts before the first p is computed, and the gradients add up to that of the batch's mean
    loss. With `awp` the gradients are computed at perturbed weights and applied to the original ones.

    If a loss or gradient is not finite, a `Fault` is returned and the weights are not updated. By then, the forwards
    have changed running statistics, z and the table of p; with `undo` these are restored. In fp16 an overflowing
    gradient is not a fault but counted in `state.skipped`, unless the scale can no longer be the cause.
    """
    model, method, parallel = state.model, state.method, state.parallel
    before = StepSnapshot(model, method, batch) if undo else None
    model.train()
    parts = batch.split(micro_batch, world())
    with state.autocast():
        views = [method.craft(state.network, part, clock) for part in parts]
        method.prepare(state.network, views, clock)
    whole = len(batch) if batch.total is None else batch.total
    losses, correct = [], []
    with _perturbed(state, views, clock, awp or AWP()):
        for part, view in zip(parts, views, strict=True):
            with parallel.no_sync(last=part is parts[-1]):
                with state.autocast():
                    loss = parallel.loss(view, clock)
                state.scaler.scale(loss.total * (part.count * world() / whole)).backward()
            logits = view.clean if method.attack is None else view.adversarial
            losses.append(Loss(loss.total.detach(), loss.parts))
            correct.append(is_correct(logits.detach(), part.y).sum())
    fault = find_fault(model, losses, views, clock, gradients=not state.scaler.is_enabled())
    updated = fault is None and _update(state, lr, momentum)
    if fault is None and not updated:
        fault = find_fault(model, losses, views, clock) if _is_stuck(state) else None
        state.skipped += fault is None  # `respond` counts a fault
    if updated:
        for part, part_loss, right in zip(parts, losses, correct, strict=True):
            state.meter.add(part_loss, right, part.count)
        parallel.average_buffers()
        if state.average is not None:
            state.average.update(model)
    elif before is not None:
        before.restore()
    elif fault is None:
        parallel.average_buffers()  # the forwards have changed the statistics of each process
    state.optimizer.zero_grad(set_to_none=True)
    return fault


def _perturbed(state: State, views: Sequence[View], clock: Clock, awp: AWP) -> AbstractContextManager[None]:
    """Return a context in which the weights are perturbed, if AWP is active at this time of the run."""
    if not awp.acts(clock):
        return nullcontext()
    return perturb_weights(state.method, views, clock, gamma=awp.gamma, scaler=state.scaler, autocast=state.autocast)


def _update(state: State, lr: float, momentum: float | None) -> bool:
    """Update the weights, with the current momentum unless one is given; return whether they were updated.

    In fp16 a gradient may be infinite: the scaler then skips the step and reduces its scale.
    """
    for group in state.optimizer.param_groups:
        group["lr"] = lr
        if momentum is not None:
            group |= {"betas": (momentum, group["betas"][1])} if "betas" in group else {"momentum": momentum}
    before = state.scaler.get_scale()
    state.scaler.step(state.optimizer)
    state.scaler.update()
    moved = state.scaler.get_scale() >= before
    state.overflows = 0 if moved else state.overflows + 1
    return moved


def _is_stuck(state: State) -> bool:
    """Whether the fp16 scale is so low, or was reduced so often, that it cannot be the cause of an overflow."""
    return state.scaler.get_scale() < 1 or state.overflows > SETTLING


def make_optimizer(
    model: nn.Module,
    momentum: float,
    weight_decay: float,
    *,
    nesterov: bool = True,
    decay_norm: bool = True,
    name: OptimizerName = "sgd",
) -> torch.optim.Optimizer:
    """Return SGD, by default with Nesterov momentum as in A.2, or AdamW; the learning rate is set at every step."""
    norms = {p for m in model.modules() if isinstance(m, NORM_LAYERS) for p in m.parameters(recurse=False)}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": trained}]
    if not decay_norm:
        groups = [{"params": [p for p in trained if p not in norms]}, {"params": [p for p in trained if p in norms]}]
    optimizer: torch.optim.Optimizer
    if name == "adamw":
        optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(momentum, ADAM_BETA2), weight_decay=weight_decay)
    else:
        nesterov = nesterov and momentum > 0
        optimizer = torch.optim.SGD(groups, lr=0.0, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    for group in optimizer.param_groups[1:]:
        group["weight_decay"] = 0.0
    return optimizer
