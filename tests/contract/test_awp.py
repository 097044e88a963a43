"""Adversarial weight perturbation equals a literal twin, and composes with every method."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import twins
from tests.support.contract_setting import CONFIGS, TWIN_NAMES, Pair, check_table, state_entry, steps, twin_settings
from tests.twins.awp import OUTER, update
from tests.twins.basics import Step
from uiat.config import AWP, Averaging
from uiat.engine import awp as module
from uiat.engine.averaging import Average
from uiat.engine.awp import _ascend as ascend
from uiat.engine.awp import _fork as fork
from uiat.engine.guards import StepSnapshot
from uiat.engine.pass_counter import PassCounter
from uiat.engine.state import State
from uiat.engine.step import make_optimizer, train_step
from uiat.methods import METHODS
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


def fork_and_forget_p(state: State, view: View, clock: Clock) -> tuple[View, StepSnapshot]:
    result = fork(state, view, clock)
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
    average = Average(model, Averaging(enabled=True))
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
    assert counters[0] == counters[1]  # BatchNorm's running statistics were moved as often as without it
    weights = [list(state.model.parameters()) for state in states]
    assert all(torch.isfinite(w).all() for w in weights[0])
    assert any(not torch.equal(a, b) for a, b in zip(*weights, strict=True))
