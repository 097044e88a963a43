"""Every registered method equals its slow literal twin, step by step, and so does every option of it."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests import twins
from tests.support.contract_setting import CONFIGS, SOFT, TWIN_NAMES, check_against_twin, soft_labels, twin_settings
from uiat.attacks import PGD
from uiat.methods import METHODS
from uiat.models import ResNet
from uiat.rng import Draws
from uiat.targets import InstanceInverse, Momentum, OneOff, UniversalInverse
from uiat.types import Batch, Clock, DataSpec


def test_every_registered_method_has_a_twin() -> None:
    assert {TWIN_NAMES.get(name, name.replace("-", "_")) for name in METHODS} == set(twins.METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_method_equals_its_twin(name: str) -> None:
    check_against_twin(name, CONFIGS[name])


@pytest.mark.parametrize("name", METHODS)
def test_method_equals_its_twin_away_from_the_edges(name: str) -> None:
    """No pixel is 0 or 1, so that no clip to [0, 1] can hide or cause a difference; momentum and one-off are at T."""
    check_against_twin(name, CONFIGS[name], epochs=2, interior=True)


@pytest.mark.parametrize("name", SOFT)
def test_method_equals_its_twin_with_soft_labels(name: str) -> None:
    check_against_twin(name, CONFIGS[name], y=soft_labels())


UIAT: Any = CONFIGS["uiat"]
IAT: Any = CONFIGS["iat"]
ONE_OFF: Any = CONFIGS["uiat-oneoff"]
SINGLE: Any = CONFIGS["n-fgsm-uiat"]

OPTIONS: dict[str, tuple[str, Any]] = {
    "table 6 row 1": ("iat", replace(IAT, inverse=InstanceInverse(beta=0))),
    "table 6 row 2": ("uiat", replace(UIAT, inverse=UniversalInverse(beta=0), momentum=Momentum(enabled=False))),
    "table 6 row 3": ("uiat", replace(UIAT, momentum=Momentum(enabled=False))),
    "table 6 row 4": ("uiat", replace(UIAT, inverse=UniversalInverse(beta=0))),
    "iat with momentum": ("iat", replace(IAT, momentum=Momentum())),
    "gradient through p": ("uiat", replace(UIAT, detach_target=False)),
    "gradient through p, instance": ("iat", replace(IAT, detach_target=False)),
    "gradient through f(x) before T'": ("uiat-oneoff", replace(ONE_OFF, one_off=OneOff(detach_clean=False))),
    "gradient through p at T'": ("uiat-oneoff", replace(ONE_OFF, detach_target=False)),
    "features summed": ("uiat", replace(UIAT, inverse=UniversalInverse(reduction="sum"))),
    "strong features": ("uiat", replace(UIAT, inverse=UniversalInverse(beta=40.0))),
    "strong features, instance": ("iat", replace(IAT, inverse=InstanceInverse(beta=40.0))),
    "gamma a half, T as an epoch": ("uiat", replace(UIAT, momentum=Momentum(gamma=0.5, start=2))),
    "momentum from the first epoch": ("uiat", replace(UIAT, momentum=Momentum(start=1))),
    "gamma 0": ("uiat", replace(UIAT, momentum=Momentum(gamma=0.0))),
    "gamma 1": ("uiat", replace(UIAT, momentum=Momentum(gamma=1.0))),
    "T' as an epoch": ("uiat-oneoff", replace(ONE_OFF, one_off=OneOff(epoch=2))),
    "T' in the last epoch": ("uiat-oneoff", replace(ONE_OFF, one_off=OneOff(epoch=4))),
    "crafting with batch statistics": ("uiat", replace(UIAT, crafting="train")),
    "crafting with batch statistics, instance": ("iat", replace(IAT, crafting="train")),
    "crafting with batch statistics, KL": ("trades", replace(CONFIGS["trades"], crafting="train")),  # type: ignore[type-var]
    "batch statistics, running ones still": ("uiat", replace(UIAT, crafting="batch")),
    "batch statistics, running ones still, KL": ("trades", replace(CONFIGS["trades"], crafting="batch")),  # type: ignore[type-var]
    "batch statistics, running ones still, HAT": ("hat", replace(CONFIGS["hat"], crafting="batch")),  # type: ignore[type-var]
    "batch statistics, running ones still, GradAlign": ("gradalign", replace(CONFIGS["gradalign"], crafting="batch")),  # type: ignore[type-var]
    "GradAlign with running statistics": ("gradalign", replace(CONFIGS["gradalign"], crafting="eval")),  # type: ignore[type-var]
    "single step with running statistics": ("n-fgsm-uiat", replace(SINGLE, crafting="eval")),
    "label smoothing, SAT": ("sat", replace(CONFIGS["sat"], label_smoothing=0.3)),  # type: ignore[type-var]
    "label smoothing, MART": ("mart", replace(CONFIGS["mart"], label_smoothing=0.3)),  # type: ignore[type-var]
    "label smoothing": ("uiat", replace(UIAT, label_smoothing=0.3)),
    "label smoothing, one-off": ("uiat-oneoff", replace(ONE_OFF, label_smoothing=0.3)),
    "p from running statistics": ("uiat", replace(UIAT, target_statistics="running")),
    "p from running statistics, instance": ("iat", replace(IAT, target_statistics="running")),
    "p from running statistics, one-off": ("uiat-oneoff", replace(ONE_OFF, target_statistics="running")),
    "large inverse radius": ("uiat", replace(UIAT, inverse=UniversalInverse(eps=0.3, step=0.2))),
    "l2 attack": ("sat", replace(CONFIGS["sat"], attack=PGD(eps=0.5, step=0.2, steps=3, norm="l2"))),  # type: ignore[type-var]
    "label smoothing of soft labels": ("sat", replace(CONFIGS["sat"], label_smoothing=0.3)),  # type: ignore[type-var]
    "no random start": ("sat", replace(CONFIGS["sat"], attack=PGD(eps=0.1, step=0.03, steps=3, start="none"))),  # type: ignore[type-var]
}


@pytest.mark.parametrize("option", OPTIONS)
def test_option_equals_the_twins(option: str) -> None:
    check_against_twin(*OPTIONS[option], y=soft_labels() if "soft labels" in option else None)


@pytest.mark.parametrize("name", ["uiat", "uiat-oneoff", "n-fgsm-uiat"])
def test_z_in_single_precision(name: str) -> None:
    """In float32 another order of summation may turn a slope near zero, or a term of |·| near its kink."""
    data = DataSpec(num_classes=10, num_samples=64, shape=(3, 16, 16))
    config: Any = METHODS[name]
    if name == "n-fgsm-uiat":
        config = replace(config, crafting="eval")
    torch.manual_seed(0)
    model = ResNet(blocks=(1, 1), width=8).build(data)
    g = torch.Generator().manual_seed(1)
    x, y, index = torch.rand(64, *data.shape, generator=g), torch.arange(64) % 10, torch.arange(64)
    method = config.build(data, seed=7)
    state = twins.new_state(next(v for k, v in method.state_dict().items() if k.endswith("z")).clone())
    twin_name = TWIN_NAMES.get(name, name.replace("-", "_"))
    hp = twins.hp_for(twin_name, **twin_settings(name, config))
    clock = Clock(8, 0, 10)  # T' of the one-off targets
    twins.METHODS[twin_name](model, x, y, index, clock.epoch, clock.epochs, state, Draws(7, 8, 0), hp)
    torch.manual_seed(0)
    model = ResNet(blocks=(1, 1), width=8).build(data)
    method(model, Batch(x, y, index), clock)
    z = next(v for k, v in method.state_dict().items() if k.endswith("z"))
    assert (z - state["z"]).abs().lt(1e-6).double().mean() >= 0.97
    assert z.abs().max() <= 4 / 255 + 1e-6
