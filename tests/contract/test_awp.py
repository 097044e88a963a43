"""Adversarial weight perturbation equals a literal twin, and composes with every method."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import twins
from tests.support.contract_setting import (
    CONFIGS,
    TWIN_NAMES,
    Pair,
    build,
    check_table,
    network,
    samples,
    state_entry,
    steps,
    twin_settings,
)
from tests.twins.awp import OUTER, update
from tests.twins.basics import Step
from uiat import perturb_weights
from uiat.averaging import AveragedWeights
from uiat.config import AWP
from uiat.engine.pass_counter import PassCounter
from uiat.engine.state import State
from uiat.engine.step import make_optimizer, train_step
from uiat.errors import UserError
from uiat.methods import METHODS
from uiat.methods import weight_perturbation as module
from uiat.methods.step_snapshot import StepSnapshot
from uiat.methods.weight_perturbation import _ascend as ascend
from uiat.methods.weight_perturbation import _fork as fork
from uiat.models.fast import speed_up
from uiat.rng import Draws
from uiat.targets import Momentum, OneOff
from uiat.types import Batch, Clock, View

ON = AWP(enabled=True)
LR, DECAY = 0.05, 0.1
UIAT: Any = CONFIGS["uiat"]
ONE_OFF: Any = CONFIGS["uiat-oneoff"]
CASES: dict[str, tuple[str, Any, AWP]] = {
    "sat": ("sat", CONFIGS["sat"], ON),
    "trades": ("trades", CONFIGS["trades"], ON),
    "uiat": ("uiat", UIAT, ON),
    "uiat, large gamma": ("uiat", UIAT, replace(ON, gamma=0.1)),
    "uiat, warm-up": ("uiat", UIAT, replace(ON, gamma=0.1, warmup=2)),
    "uiat, gradient through p": ("uiat", replace(UIAT, detach_target=False), replace(ON, gamma=0.05)),
    "uiat without momentum": ("uiat", replace(UIAT, momentum=Momentum(enabled=False)), ON),
    "uiat, crafting with batch statistics": ("uiat", replace(UIAT, crafting="train"), ON),
    "one-off": ("uiat-oneoff", ONE_OFF, ON),
    "one-off, T' early": ("uiat-oneoff", replace(ONE_OFF, one_off=OneOff(epoch=2)), replace(ON, gamma=0.1)),
}


def check(name: str, config: Any, awp: AWP) -> None:
    """Assert equality with the twin at every step: loss, z, p, weights and running statistics."""
    pair = Pair(name, config)
    state = State(pair.model, pair.method, make_optimizer(pair.model, 0.0, DECAY), PassCounter(pair.model))
    twin_name = TWIN_NAMES.get(name, name)
    hp = twins.hp_for(twin_name, **twin_settings(name, config))
    gamma = awp.gamma if awp.gamma is not None else {"sat": 0.01}.get(name, 0.005)
    for clock, index in steps():
        x, y = pair.x[index], pair.y[index]
        state.meter = type(state.meter)()
        assert train_step(state, Batch(x, y, index), clock, lr=LR, awp=awp) is None
        draws = Draws(7, clock.epoch, clock.step)
        step = Step(pair.twin_model, x, y, index, clock.epoch, clock.epochs, pair.state, draws, hp)
        size = gamma if clock.epoch > awp.warmup else 0.0
        loss = update(step, OUTER[twin_name], size, LR, DECAY)
        assert state.meter.means()["loss"] == pytest.approx(float(loss), rel=1e-6, abs=1e-7), clock
        z = state_entry(pair.method, "z")
        if z is not None:
            torch.testing.assert_close(z, pair.state["z"], rtol=0, atol=1e-6)
        check_table(pair)
        for ours, theirs in zip(pair.model.state_dict().items(), pair.twin_model.state_dict().items(), strict=True):
            torch.testing.assert_close(ours[1], theirs[1], rtol=1e-6, atol=1e-7, msg=f"{ours[0]} at {clock}")


@pytest.mark.parametrize("case", CASES)
def test_it_equals_a_literal_twin(case: str) -> None:
    check(*CASES[case])


def every_parameter(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def descend(weights: list[Tensor], gradients: list[Tensor], gamma: float) -> None:
    ascend(weights, gradients, -gamma)


def ascend_by_gamma(weights: list[Tensor], gradients: list[Tensor], gamma: float) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        ascend([weight], [gradient], gamma / float(weight.detach().norm()))


def fork_and_forget_p(model: Any, method: Any, view: View, *rest: Any) -> tuple[View, StepSnapshot]:
    result = fork(model, method, view, *rest)
    view.log_p = None
    return result


def ignore(_: StepSnapshot) -> None:
    pass


MISTAKES: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "descent": (module, "_ascend", descend, "sat"),
    "not relative to the layer": (module, "_ascend", ascend_by_gamma, "sat"),
    "biases too": (module, "_layers", every_parameter, "sat"),
    "running statistics moved": (StepSnapshot, "restore", ignore, "sat"),
    "table written twice": (StepSnapshot, "restore", ignore, "uiat, gradient through p"),
    "p taken twice": (module, "_fork", fork_and_forget_p, "uiat"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, wrong, case = MISTAKES[name]
    monkeypatch.setattr(owner, function, wrong)
    with pytest.raises(AssertionError):
        check(*CASES[case])


@pytest.mark.parametrize("name", METHODS)
def test_it_composes_with_every_method(name: str) -> None:
    """Buffers of the method, and its memory, are as without it wherever they do not depend on the weights.

    With averaged weights beside it: they follow the weights themselves, not the perturbed ones.
    """
    pair = Pair(name, CONFIGS[name])
    model, method = copy.deepcopy(pair.model), copy.deepcopy(pair.method)
    average = AveragedWeights(model)
    expected = {key: value.clone() for key, value in model.state_dict().items()}
    states = [
        State(model, method, make_optimizer(model, 0.9, 5e-4), PassCounter(model), average),
        State(pair.model, pair.method, make_optimizer(pair.model, 0.9, 5e-4), PassCounter(pair.model)),
    ]
    for clock, index in steps():
        batch = Batch(pair.x[index], pair.y[index], index)
        for state, awp in zip(states, (ON, None), strict=True):
            assert train_step(state, batch, clock, lr=LR, awp=awp) is None
        kept = min(0.995, average.updates / (9 + average.updates))  # t counts from 0
        for key, value in model.state_dict().items():
            expected[key] = value if key.endswith("tracked") else kept * expected[key] + (1 - kept) * value
    for key, value in average.weights.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-9, atol=1e-12, msg=key)
    with_it, without = (state.method.state_dict() for state in states)
    seen = [key for key in without if key.endswith("seen")]
    assert all(torch.equal(with_it[key], without[key]) for key in seen)
    versions = [[m.version for m in state.method.modules() if hasattr(m, "version")] for state in states]
    assert versions[0] == versions[1]
    counters = [
        [value for key, value in state.model.state_dict().items() if key.endswith("tracked")] for state in states
    ]
    assert counters[0] == counters[1]  # BatchNorm's running statistics were updated as often as without it
    weights = [list(state.model.parameters()) for state in states]
    assert all(torch.isfinite(w).all() for w in weights[0])
    assert any(not torch.equal(a, b) for a, b in zip(*weights, strict=True))


@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize("name", ["sat", "trades", "uiat", "uiat-oneoff", "gradalign-uiat"])
def test_a_custom_loop_makes_the_steps_of_the_command(name: str, micro_batch: int | None) -> None:
    """With the public helpers for AWP and averaged weights."""
    pair = Pair(name, CONFIGS[name])
    theirs, method = copy.deepcopy(pair.model), copy.deepcopy(pair.method)
    state = State(theirs, method, make_optimizer(theirs, 0.9, DECAY), PassCounter(theirs), AveragedWeights(theirs, 0.9))
    ours, optimizer = pair.model, make_optimizer(pair.model, 0.9, DECAY)
    averaged = AveragedWeights(ours, decay=0.9)
    optimizer.param_groups[0]["lr"] = LR
    for clock, index in steps():
        batch = Batch(pair.x[index], pair.y[index], index)
        awp = AWP(enabled=True, gamma=0.02, warmup=1)
        assert train_step(state, batch, clock, lr=LR, micro_batch=micro_batch, awp=awp) is None
        ours.train()
        views = [pair.method.craft(ours, part, clock) for part in batch.split(micro_batch)]
        pair.method.prepare(ours, views, clock)
        with perturb_weights(pair.method, views, clock, gamma=0.02) if clock.epoch > 1 else nullcontext():
            for view in views:
                (pair.method.loss(view, clock).total * len(view.batch) / len(batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
        averaged.update(ours)
    assert state.average is not None
    for found, expected in (
        (ours.state_dict(), theirs.state_dict()),
        (pair.method.state_dict(), method.state_dict()),
        (averaged.weights, state.average.weights),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    moved = [not torch.equal(averaged.weights[name], value) for name, value in ours.named_parameters()]
    assert all(moved)
    with averaged.swapped_in(ours):
        torch.testing.assert_close(dict(ours.state_dict()), averaged.weights, rtol=0, atol=0)


def test_a_caller_in_autocast_and_a_faster_network() -> None:
    """The weights that are perturbed and restored are the model's own."""
    model, method = network(dtype=torch.float32), build(CONFIGS["uiat"], torch.float32)
    x, y = samples(torch.float32)
    own = copy.deepcopy(model.state_dict())
    fast, batch, clock = speed_up(model, x), Batch(x, y, torch.arange(len(y))), Clock(1, 0, 4)
    with torch.autocast("cpu", torch.bfloat16):
        view = method.craft(fast, batch, clock)
        method.prepare(fast, [view], clock)
        with perturb_weights(method, [view], clock, gamma=0.1):
            assert not torch.equal(model.get_parameter("conv1.weight"), own["conv1.weight"])
            method.loss(view, clock).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert torch.equal(parameter, own[name]), name


def test_a_network_without_a_trained_matrix() -> None:
    """Where only biases are trained, nothing is perturbed."""
    model, method = network(), build(CONFIGS["sat"])
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.ndim == 1)
    x, y = samples()
    view = method.craft(model, Batch(x, y), Clock(1, 0, 4))
    before = copy.deepcopy(dict(model.named_parameters()))
    with perturb_weights(method, [view], Clock(1, 0, 4), gamma=0.5):
        assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
        assert method.loss(view, Clock(1, 0, 4)).total.requires_grad


def test_an_invalid_gamma() -> None:
    model, method = network(), build(CONFIGS["sat"])
    x, y = samples()
    view = method.craft(model, Batch(x, y), Clock(1, 0, 4))
    with pytest.raises(UserError, match=r"gamma .* is 5"), perturb_weights(method, [view], Clock(1, 0, 4), gamma=5):
        pass
