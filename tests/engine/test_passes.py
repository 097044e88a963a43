"""Exact pass counts of a step of each method, in batches."""

import gc
from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

import pytest
import torch
from torch import nn

from tests.support.runs import finished, load_checkpoint, tiny
from uiat import HAT, IAT, MART, SAT, TRADES, UIAT, DataSpec, GradAlign, Natural, SingleStep, UIATOneOff
from uiat.attacks import NFGSM, RSFGSM
from uiat.config import AWP
from uiat.engine.pass_counter import PassCounter
from uiat.engine.setup import build_state
from uiat.engine.state import State
from uiat.engine.step import make_optimizer, train_step
from uiat.methods import METHODS, UIATPlugIn
from uiat.recipes import get_recipe
from uiat.targets import Momentum, UniversalInverse
from uiat.types import Batch, Clock

SPEC = DataSpec(num_classes=3, num_samples=12, shape=(1, 8, 8))
EPOCHS, T = 10, 8
"""The one-off epoch T' is 80 % of the epochs."""
N = 6


@dataclass
class Setting:
    """A method, and the step at which it is counted."""

    method: Any
    epoch: int = 1


def counts(setting: Setting, micro_batch: int | None = None, awp: AWP | None = None) -> tuple[float, float, float]:
    """Return (forwards, input-backwards, weight-backwards) of one step, in batches."""
    recipe = get_recipe("digits-resnet8-uiat")
    config = replace(recipe, method=setting.method, model=replace(recipe.model, width=2))  # type: ignore[type-var]
    helper = config.model.build(SPEC).requires_grad_(False)
    state = build_state(config, SPEC, torch.device("cpu"), helper)
    x, y, index = torch.rand(12, *SPEC.shape), torch.arange(12) % 3, torch.arange(12)
    if setting.epoch > T:  # the epoch before, in which every sample gets its p
        for step in (0, 1):
            rows = slice(step * N, step * N + N)
            train_step(state, Batch(x[rows], y[rows], index[rows]), Clock(T, step, EPOCHS), lr=0.1)
    return counted(state, Batch(x[:N], y[:N], index[:N]), setting.epoch, micro_batch, awp)


def counted(
    state: State, batch: Batch, epoch: int, micro_batch: int | None, awp: AWP | None
) -> tuple[float, float, float]:
    before = dict(state.passes.counts)
    train_step(state, batch, Clock(epoch, 0, EPOCHS), lr=0.1, micro_batch=micro_batch, awp=awp)
    found = {name: (count - before[name]) / len(batch) for name, count in state.passes.counts.items()}
    return found["forward"], found["input_backward"], found["weight_backward"]


ATTACK = 10
PLUG_IN = UIATPlugIn(enabled=True)
CASES = {
    "natural": (Setting(Natural()), (1, 0, 1)),
    "sat": (Setting(SAT()), (ATTACK + 1, ATTACK, 1)),
    # f(x) for the attack's KL, then f(x) and f(x̂) in the loss, both with a backward
    "trades": (Setting(TRADES()), (1 + ATTACK + 2, ATTACK, 2)),
    "mart": (Setting(MART()), (ATTACK + 2, ATTACK, 2)),
    "hat": (Setting(HAT()), (1 + ATTACK + 3, ATTACK, 3)),  # and f beyond x̂; the helper's passes are not the network's
    "iat": (Setting(IAT()), (ATTACK + 2 + 5 + 1 + 1, ATTACK + 5, 1)),
    "uiat": (Setting(UIAT()), (ATTACK + 2 + 1 + 1 + 1, ATTACK + 1, 1)),
    "uiat late": (Setting(UIAT(), EPOCHS), (ATTACK + 2 + 1 + 1 + 1, ATTACK + 1, 1)),  # momentum costs no pass
    "uiat without momentum": (Setting(UIAT(momentum=Momentum(enabled=False))), (ATTACK + 5, ATTACK + 1, 1)),
    "uiat without features": (Setting(UIAT(inverse=UniversalInverse(beta=0))), (ATTACK + 3, ATTACK + 1, 1)),
    "uiat with a gradient through p": (Setting(UIAT(detach_target=False)), (ATTACK + 5, ATTACK + 1, 2)),
    "uiat, p from running statistics": (Setting(UIAT(target_statistics="running")), (ATTACK + 5, ATTACK + 1, 1)),
    "one-off before T'": (Setting(UIATOneOff(), T - 1), (ATTACK + 1 + 1, ATTACK, 1)),
    "one-off at T'": (Setting(UIATOneOff(), T), (ATTACK + 5, ATTACK + 1, 1)),
    "one-off after T'": (Setting(UIATOneOff(), T + 1), (ATTACK + 1, ATTACK, 1)),
    "rs-fgsm": (Setting(SingleStep(RSFGSM())), (2, 1, 1)),
    "n-fgsm": (Setting(SingleStep(NFGSM())), (2, 1, 1)),
    "n-fgsm + uiat before T'": (Setting(SingleStep(NFGSM(), PLUG_IN), T - 1), (3, 1, 1)),
    "n-fgsm + uiat at T'": (Setting(SingleStep(NFGSM(), PLUG_IN), T), (1 + 1 + 1 + 1, 2, 1)),
    "n-fgsm + uiat after T'": (Setting(SingleStep(NFGSM(), PLUG_IN), T + 1), (2, 1, 1)),
    # FGSM, whose gradient is the alignment's at x; f(x̂); and a gradient near x that is differentiated once more
    "gradalign": (Setting(GradAlign()), (1 + 1 + 1, 1, 1 + 2)),
    "gradalign with running statistics": (Setting(GradAlign(crafting="eval")), (1 + 1 + 1 + 1, 2, 1 + 2)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_a_step(name: str, micro_batch: int | None) -> None:
    setting, expected = CASES[name]
    assert counts(setting, micro_batch) == expected


@pytest.mark.parametrize("name", [name for name in CASES if "gradalign" not in name])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_a_step_with_weight_perturbation(name: str, micro_batch: int | None) -> None:
    """The ascent repeats only what has a backward pass to the weights: a detached p is computed once."""
    setting, (forward, inputs, weights) = CASES[name]
    found = counts(setting, micro_batch, AWP(enabled=True))
    assert found == (forward + weights, inputs, 2 * weights)


def test_weight_perturbation_repeats_gradaligns_gradients() -> None:
    """FGSM; then twice what the loss takes: f(x̂), and a gradient near x that is differentiated once more."""
    assert counts(Setting(GradAlign()), awp=AWP(enabled=True)) == (1 + 2 * 2, 1, 2 * 3)


def test_every_method_is_counted() -> None:
    found = {type(setting.method) for setting, _ in CASES.values()}
    assert found == {type(method) for method in METHODS.values()}


def test_counting_ends_when_closed() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    counter = PassCounter(model)
    model(torch.rand(5, 1, 8, 8)).sum().backward()
    assert counter.counts == {"forward": 5, "input_backward": 0, "weight_backward": 5}
    counter.close()
    model(torch.rand(5, 1, 8, 8)).sum().backward()
    assert counter.counts["forward"] == 5


class Recurrent(nn.Module):
    """Its first layer gives a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.LSTM(8, 5, batch_first=True), nn.Linear(5, 3)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x[:, 0])[0][:, -1]  # type: ignore[no-any-return]

    def head(self, f: torch.Tensor) -> torch.Tensor:
        return self.last(f)  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


class Attentive(nn.Module):
    """So does this."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, 0]
        return self.last(self.first(x, x, x)[0].mean(dim=1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("build", [Recurrent, Attentive])
@pytest.mark.parametrize("name", ["sat", "trades", "uiat"])
def test_a_first_layer_that_gives_a_tuple(build: type[nn.Module], name: str) -> None:
    torch.manual_seed(0)
    model = build()
    setting, expected = CASES[name]
    method = setting.method.build(SPEC)
    batch = Batch(torch.rand(N, *SPEC.shape), torch.arange(N) % 3, torch.arange(N))
    method(model, batch, Clock(1, 0, EPOCHS))  # the feature search is done now
    state = State(model, method, make_optimizer(model, 0.9, 0.0), PassCounter(model))
    assert counted(state, batch, 1, None, None) == expected


def test_a_frozen_first_layer() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, 3))
    model[1].requires_grad_(False)
    state = State(model, SAT().build(SPEC), make_optimizer(model, 0.9, 0.0), PassCounter(model))
    batch = Batch(torch.rand(N, *SPEC.shape), torch.arange(N) % 3, torch.arange(N))
    assert counted(state, batch, 1, None, None) == CASES["sat"][1]


def test_a_forward_that_fails_does_not_end_the_count() -> None:
    model = Recurrent()
    counter = PassCounter(model)
    with pytest.raises(RuntimeError):
        model(torch.rand(5, 1, 8, 7))
    model.head(model.features(torch.rand(5, 1, 8, 8)))
    model(torch.rand(5, 1, 8, 8))
    assert counter.counts["forward"] == 10


def test_a_counter_keeps_no_network_alive() -> None:
    state = build_state(get_recipe("digits-resnet8-sat"), SPEC, torch.device("cpu"), None)
    assert state.fast is not None
    assert state.fast.folds > 0
    gone = ref(state.model)
    del state
    gc.collect()
    assert gone() is None


def test_validation_is_not_a_cost_of_training() -> None:
    assert load_checkpoint(finished(tiny("sat")))["passes"] == {
        "forward": 540,
        "input_backward": 360,
        "weight_backward": 180,
    }
