"""One step of the optimiser, whole or in micro-batches."""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from uiat.distributed import world
from uiat.engine.awp import AWP, perturbed
from uiat.engine.guards import Before, Fault, find_fault
from uiat.engine.state import State
from uiat.types import Batch, Clock, Loss

NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm)
"""Layers that normalise: BatchNorm and InstanceNorm are the first."""


def train_step(
    state: State,
    batch: Batch,
    clock: Clock,
    *,
    lr: float,
    micro_batch: int | None = None,
    undo: bool = False,
    awp: AWP | None = None,
) -> Fault | None:
    """Update the weights from one batch, or from this process's share of one.

    With `micro_batch` the batch goes through the network in parts, and still equals one step: every x̂ is crafted and z
    is updated from all parts before the first p is taken, and the gradients add up to the whole batch's mean. With
    `awp` they are taken at perturbed weights, and move the weights themselves.

    A loss or gradient that is not finite is returned, and the weights stay. The forwards have moved running statistics,
    z and the table of p by then; with `undo`, these are put back.
    """
    model, method, parallel = state.model, state.method, state.parallel
    before = Before(state, batch) if undo else None
    model.train()
    parts = batch.split(micro_batch, world())
    views = [method.craft(model, part, clock) for part in parts]
    method.prepare(model, views, clock)
    whole = len(batch) if batch.total is None else batch.total
    losses, correct = [], []
    with perturbed(state, views, clock, awp or AWP()):
        for part, view in zip(parts, views, strict=True):
            with parallel.quiet(last=part is parts[-1]):
                loss = parallel.loss(view, clock)
                (loss.total * (part.count * world() / whole)).backward()
            logits = view.clean if method.attack is None else view.adversarial
            losses.append(Loss(loss.total.detach(), loss.parts))
            correct.append((logits.detach().argmax(dim=1) == part.y).sum())
    fault = find_fault(model, losses, views, clock)
    if fault is None:
        for part, found, right in zip(parts, losses, correct, strict=True):
            state.meter.add(found, right, part.count)
        _update(state, lr)
    elif before is not None:
        before.restore()
    state.optimizer.zero_grad(set_to_none=True)
    return fault


def _update(state: State, lr: float) -> None:
    for group in state.optimizer.param_groups:
        group["lr"] = lr
    state.optimizer.step()
    state.parallel.settle()
    if state.average is not None:
        state.average.update(state.model)


def make_optimizer(
    model: nn.Module, momentum: float, weight_decay: float, *, decay_norm: bool = True
) -> torch.optim.SGD:
    """Return SGD with Nesterov momentum, as in A.2; its learning rate is set at every step."""
    norms = {p for m in model.modules() if isinstance(m, NORMS) for p in m.parameters(recurse=False)}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": trained}]
    if not decay_norm:
        groups = [{"params": [p for p in trained if p not in norms]}, {"params": [p for p in trained if p in norms]}]
    optimizer = torch.optim.SGD(groups, lr=0.0, momentum=momentum, nesterov=momentum > 0, weight_decay=weight_decay)
    for group in optimizer.param_groups[1:]:
        group["weight_decay"] = 0.0
    return optimizer
