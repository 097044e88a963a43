"""Round trip of configurations through JSON."""

import json
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import pytest
from torch import Tensor, nn

from uiat import models, recipes
from uiat.attacks import ATTACKS, PGD
from uiat.config import AnyConfig, Schedule
from uiat.config_json import from_json, to_json
from uiat.errors import UserError
from uiat.methods import SAT
from uiat.rng import Draws
from uiat.types import DataSpec


def round_trip(config: AnyConfig) -> AnyConfig:
    return from_json(json.loads(json.dumps(to_json(config))))


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_recipe(name: str) -> None:
    config = recipes.get_recipe(name)
    assert round_trip(config) == config
    assert type(round_trip(config).method) is type(config.method)


@pytest.mark.parametrize("name", models.MODELS)
def test_every_model(name: str) -> None:
    config = replace(recipes.get_recipe(recipes.DEFAULT_RECIPE), model=models.get_model(name))
    assert round_trip(config) == config


def test_changes_survive() -> None:
    config = recipes.get_recipe("digits-resnet8-uiat")
    schedule = Schedule(name="piecewise", lr=1 / 3, milestones=(0.1, 0.2, 0.3))
    changed = replace(config, train=replace(config.train, schedule=schedule, micro_batch=7), seed=2**40)
    assert round_trip(changed) == changed != config


def test_every_part_names_its_kind() -> None:
    def kinds(part: object, saved: dict[str, object]) -> None:
        assert saved["kind"] == type(part).__name__
        for entry in fields(part):  # type: ignore[arg-type]
            value, inner = getattr(part, entry.name), saved[entry.name]
            if is_dataclass(value):
                assert isinstance(inner, dict)
                kinds(value, inner)

    config = recipes.get_recipe("cifar10-resnet8-gradalign-uiat")
    saved = to_json(config)
    assert saved["schema"] == 1
    kinds(config, saved)


@dataclass(frozen=True)
class Flat:
    """A custom model."""

    width: int = 3

    def build(self, data: DataSpec) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(data.numel, data.num_classes))


def test_a_custom_model_once_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(recipes.get_recipe(recipes.DEFAULT_RECIPE), model=Flat(4))
    with pytest.raises(UserError, match="unknown kind of configuration 'Flat'"):
        round_trip(config)
    monkeypatch.setitem(models.MODELS, "flat", Flat())
    assert round_trip(config) == config


@dataclass(frozen=True)
class Twice:
    """A registered attack."""

    eps: float = 0.1
    factor: int = 2
    attack: PGD = PGD(steps=1)

    @property
    def radius(self) -> float:
        return self.eps

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws | None = None) -> Tensor:
        return self.attack(model, x, y, draws)


def test_a_custom_attack_once_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    attack: Any = Twice(factor=3)
    config = replace(recipes.get_recipe("digits-resnet8-sat"), method=SAT(attack=attack))
    with pytest.raises(UserError, match="attack"):
        from_json(to_json(config))
    monkeypatch.setitem(ATTACKS, "twice", Twice())
    assert from_json(to_json(config)) == config


@pytest.mark.parametrize(("cutmix", "partner"), [(0.0, "any"), (0.5, "class")])
def test_keys_of_results_are_those_of_earlier_versions(cutmix: float, partner: str) -> None:
    config = recipes.get_recipe(recipes.DEFAULT_RECIPE)
    key = to_json(replace(config, data=replace(config.data, cutmix=cutmix)), key=True)
    assert key["data"]["cutmix_with"] == partner
    assert " ".join(key["data"]) == (
        "kind name test test_fraction subset test_subset size validation crop flip generated cutout cutmix download "
        "cutmix_with"
    ), "fields that later versions added are part of a key only where they differ from their defaults"
