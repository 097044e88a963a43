"""Passes of a step: the expected counts of each method, and what is counted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.bench import SETTING
from uiat.attacks import PGD
from uiat.bench.pass_count import DIRECTIONS, count_passes, passes_per_image
from uiat.config import AWP, Training
from uiat.methods import IAT, METHODS, TRADES, UIAT, GradAlign, Method, MethodConfig
from uiat.targets import UniversalInverse
from uiat.types import DataSpec

PGD_10 = {"craft_gradient": 10}
FEATURES = {"craft_forward": 2}
"""Of x and x̂, which Eq. 4 compares with those of x̌."""
P = {"predict": 1}
FGSM = {"train_gradient": 1}
UPDATE = {"update": 1}


def add(*parts: Mapping[str, float]) -> dict[str, float]:
    """Return the sums of the counts."""
    return {kind: sum(part.get(kind, 0) for part in parts) for kind in {kind for part in parts for kind in part}}


def one_off(base: Mapping[str, float], inverse: Mapping[str, float]) -> list[Mapping[str, float]]:
    """Return the passes before, in and after the epoch T'."""
    return [add(base, P), add(base, inverse, P), base]


EXPECTED: dict[str, list[Mapping[str, float]]] = {
    "natural": [UPDATE],
    "sat": [add(PGD_10, UPDATE)],
    "trades": [add(PGD_10, {"craft_forward": 1}, UPDATE, UPDATE)],
    "mart": [add(PGD_10, UPDATE, UPDATE)],
    "hat": [add(PGD_10, {"craft_forward": 1}, {"craft_forward": 1}, UPDATE, UPDATE, UPDATE)],
    "iat": [add(PGD_10, {"craft_gradient": 5}, FEATURES, P, UPDATE)],
    "uiat": [add(PGD_10, {"craft_gradient": 1}, FEATURES, P, UPDATE)],
    "uiat-oneoff": one_off(add(PGD_10, UPDATE), add({"craft_gradient": 1}, FEATURES)),
    "rs-fgsm": [add(FGSM, UPDATE)],
    "n-fgsm": [add(FGSM, UPDATE)],
    "gradalign": [add(FGSM, {"double": 1}, UPDATE)],
    "rs-fgsm-uiat": one_off(add(FGSM, UPDATE), FGSM),
    "n-fgsm-uiat": one_off(add(FGSM, UPDATE), FGSM),
    "gradalign-uiat": one_off(add(FGSM, {"double": 1}, UPDATE), FGSM),
}
"""Passes of each kind in a step, for each phase of a run. HAT's second `craft_forward` is its helper's."""


def kinds_of(method: MethodConfig, train: Training = SETTING.train) -> list[dict[str, float]]:
    return [{kind: n for kind, n in phase.kinds.items() if n} for phase in count_passes(method, train)]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_makes_the_passes_that_it_should(name: str) -> None:
    assert kinds_of(METHODS[name]) == EXPECTED[name]


OPTIONS: dict[str, tuple[MethodConfig, Mapping[str, float]]] = {
    "p with a gradient": (
        UIAT(detach_target=False, inverse=UniversalInverse(beta=0)),
        add(PGD_10, {"craft_gradient": 1}, UPDATE, UPDATE),
    ),
    "p from running statistics": (
        IAT(target_statistics="running", attack=PGD(steps=2)),
        {"craft_gradient": 7, "craft_forward": 3, "update": 1},
    ),
    "crafting in training mode": (TRADES(crafting="batch"), {"train_gradient": 10, "predict": 1, "update": 2}),
    "alignment with other statistics than the attack": (
        GradAlign(crafting="eval"),
        {"craft_gradient": 1, "train_gradient": 1, "double": 1, "update": 1},
    ),
}


@pytest.mark.parametrize(("method", "expected"), OPTIONS.values(), ids=OPTIONS)
def test_options_change_the_passes(method: MethodConfig, expected: Mapping[str, float]) -> None:
    assert kinds_of(method) == [expected]


@pytest.mark.parametrize("name", METHODS)
def test_the_small_network_is_representative(name: str) -> None:
    """Convolutions, a folded copy for the attack and channels_last: the same passes."""
    method = METHODS[name]
    state = SETTING.build_state(method, SETTING.build_helper(method))
    for phase in count_passes(method, SETTING.train, SETTING.spec):
        before = dict(state.passes.counts)
        SETTING.make_step(name, state, phase.clock)()
        found = {kind: (state.passes.counts[kind] - before[kind]) / SETTING.batch_size for kind in DIRECTIONS}
        assert found == phase.counts


def test_awp_adds_the_passes_of_its_ascent() -> None:
    train = Training(epochs=10, awp=AWP(enabled=True, warmup=4))
    first, second = count_passes(METHODS["trades"], train)
    assert (first.share, second.share) == (0.4, 0.6)
    assert second.counts == add(dict(first.counts), {"forward": 2, "weight_backward": 2})


def test_one_off_is_an_average_over_a_run() -> None:
    phases = count_passes(METHODS["uiat-oneoff"], SETTING.train)
    assert [round(phase.share, 2) for phase in phases] == [0.79, 0.01, 0.2]
    assert sum(phase.share * phase.kinds["predict"] for phase in phases) == pytest.approx(0.79 + 0.01)
    assert sum(phase.share * phase.kinds["craft_gradient"] for phase in phases) == pytest.approx(10.01)


@pytest.mark.parametrize(
    ("epoch", "shares"), [(1, [0.01, 0.99]), (100, [0.99, 0.01]), (320, [319 / 320, 1 / 320])], ids=str
)
def test_one_off_in_any_epoch(epoch: int, shares: list[float]) -> None:
    method: Any = METHODS["uiat-oneoff"]
    method = replace(method, one_off=replace(method.one_off, epoch=epoch))
    assert [phase.share for phase in count_passes(method, SETTING.train)] == pytest.approx(shares)


@dataclass(frozen=True)
class Wasteful(MethodConfig):
    """A custom method with an unused forward pass."""

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        return WastefulMethod(data, attack=PGD(steps=2), terms=METHODS["sat"].build(data).terms)


class WastefulMethod(Method):
    def loss(self, view: Any, clock: Any) -> Any:
        with torch.no_grad():
            view.model(view.batch.x)
        return super().loss(view, clock)


def test_a_user_defined_method_is_counted() -> None:
    assert kinds_of(Wasteful()) == [{"craft_gradient": 2, "predict": 1, "update": 1}]
    assert passes_per_image(Wasteful(), 5) == (5 * 4, 5 * 2, 5)
