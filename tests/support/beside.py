"""A training step beside the same step of a reference, from the same state and along the same perturbations."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from torch import Tensor

from tests.support.runs import CPU, splits
from uiat.balls import Linf
from uiat.config import AnyConfig
from uiat.engine.setup import build_loader, build_state
from uiat.engine.state import Meter, State
from uiat.engine.step import train_step
from uiat.types import Batch, Clock


@dataclass
class Trace:
    """What one step computed."""

    slopes: list[Tensor] = field(default_factory=list)
    """The gradient of each step of x̂, x̌ or z, in the order of the steps."""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """Of the weights, as the optimiser gets them."""
    losses: dict[str, float] = field(default_factory=dict)
    """The loss and its terms."""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    """Running statistics, z and the table of p, after the step."""


def traced_step(state: State, batch: Batch, clock: Clock, *, lr: float, along: Trace | None = None) -> Trace:
    """Take a step and return what it computed; with `along`, x̂, x̌ and z move by the slopes of that step.

    Where a slope is 0 up to rounding, its sign is chance, and a sign decides a whole step of an attack. With the slopes
    of another step, all that is compared with that step is computed at the same points.
    """
    found, original = Trace(), Linf.move

    def move(ball: Linf, at: Tensor, slope: Tensor, step: float) -> Tensor:
        used = slope if along is None else along.slopes[len(found.slopes)]
        found.slopes.append(slope.detach().clone())
        return original(ball, at, used, step)

    def keep(*_: Any) -> None:
        found.gradients |= {n: p.grad.clone() for n, p in state.model.named_parameters() if p.grad is not None}

    state.meter = Meter()
    hook = state.optimizer.register_step_pre_hook(keep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Linf, "move", move)
        assert train_step(state, batch, clock, lr=lr) is None
    hook.remove()
    found.losses = state.meter.means()
    kept = [*state.model.named_buffers(), *state.method.named_buffers()]
    found.buffers = {name: tensor.clone() for name, tensor in kept if tensor.is_floating_point()}
    return found


def side_by_side(config: AnyConfig, reference: AnyConfig) -> Iterator[tuple[Trace, Trace]]:
    """Train by the reference's configuration; yield each step of the other one from the same state, and its own."""
    parts = splits(reference.data)
    ours, theirs = (build_state(each, parts.spec, CPU, None) for each in (config, reference))
    loader, plan = build_loader(reference, parts.train, CPU), reference.train
    steps = loader.steps_per_epoch
    for epoch in range(1, plan.epochs + 1):
        for step, batch in loader.epoch(epoch):
            clock = Clock(epoch, step, plan.epochs)
            lr = plan.schedule.at((epoch - 1) * steps + step, plan.epochs * steps)
            ours.load_state_dict(theirs.state_dict())
            ours.method.load_state_dict(theirs.method.state_dict())
            expected = traced_step(theirs, batch, clock, lr=lr)
            yield traced_step(ours, batch, clock, lr=lr, along=expected), expected
