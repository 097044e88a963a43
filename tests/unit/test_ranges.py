"""Validation of numbers by the dataclasses of this package; custom ones are not restricted."""

import json
from dataclasses import dataclass, fields, replace
from math import inf, nan
from typing import Any, get_args

import pytest
from torch import Tensor, nn

from tests.support.runs import tiny
from uiat.attacks import ATTACKS, FGSM, NFGSM, PGD
from uiat.config import AWP, Averaging, Config, Schedule, Training, Validation, check
from uiat.config_json import _kinds
from uiat.data.data_config import DataConfig, Generated
from uiat.errors import UserError
from uiat.fields import check_numbers, unchecked
from uiat.methods import HAT, SAT, TRADES, UIAT, GradAlign, Method, UIATPlugIn
from uiat.objectives.terms import (
    AdversarialCrossEntropy,
    CleanCrossEntropy,
    GradientAlignment,
    MARTBoostedCrossEntropy,
    Weighted,
    ce_adversarial,
)
from uiat.rng import Draws
from uiat.runs.run_folder import RunFolder
from uiat.targets import InstanceInverse, Momentum, OneOff, UniversalInverse
from uiat.types import DataSpec

NUMBERS = (int, float)
TERMS = (AdversarialCrossEntropy, CleanCrossEntropy, MARTBoostedCrossEntropy, GradientAlignment)
OWNERS = {cls for cls in _kinds().values() if not cls.__module__.startswith("uiat.models")}
OWNERS |= {type(attack) for attack in ATTACKS.values()} | set(TERMS)
UNBOUNDED = {(Config, "seed")}


def leaves(annotation: Any) -> set[Any]:
    args = get_args(annotation)
    return set().union(*map(leaves, args)) if args else {annotation}


def numeric() -> list[tuple[type, str]]:
    return sorted(
        ((cls, entry.name) for cls in OWNERS for entry in fields(cls) if leaves(entry.type) & set(NUMBERS)),
        key=lambda pair: (pair[0].__name__, pair[1]),
    )


def made(cls: type, **values: object) -> object:
    if cls is Config:
        return replace(tiny("uiat"), **values)  # type: ignore[arg-type]
    return cls(**values)


@pytest.mark.parametrize("value", [nan, inf, -inf, -(10**30), 10**30], ids=str)
def test_every_number_of_every_configuration(value: float) -> None:
    """Found from the types of the fields: one that is added without a range is noticed here."""
    for cls, name in numeric():
        if value in (10**30, -(10**30)) and (cls, name) in UNBOUNDED:
            continue
        with pytest.raises(UserError) as caught:
            made(cls, **{name: value})
        for fact in (cls.__name__, name, str(value)):
            assert fact in str(caught.value) or f"{value:g}" in str(caught.value)


def test_there_are_many() -> None:
    assert len(numeric()) > 50


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        (Schedule, {"lr": -0.1}),
        (Schedule, {"warmup": 2}),
        (Schedule, {"milestones": (0.5, nan)}),
        (Schedule, {"milestones": (0.5, 75)}),
        (Schedule, {"factor": -3}),
        (Schedule, {"low_momentum": 1.1}),
        (Averaging, {"decay": 1.2}),
        (AWP, {"gamma": -0.1}),
        (AWP, {"warmup": -1}),
        (Training, {"momentum": 1e10}),
        (Training, {"epochs": 2.5}),
        (Training, {"epochs": None}),
        (Training, {"micro_batch": 0}),
        (Training, {"checkpoint_minutes": -1}),
        (Validation, {"batch_size": 0}),
        (Validation, {"eps": 8.0, "norm": "linf"}),
        (Generated, {"original": 1.1}),
        (DataConfig, {"size": (0, 8)}),
        (DataConfig, {"cutmix": 1.5}),
        (DataConfig, {"cutout": -1}),
        (DataConfig, {"rotation": 181}),
        (DataConfig, {"test_fraction": 1}),
        (DataConfig, {"subset": 0}),
        (UIAT, {"lam": -3}),
        (TRADES, {"omega": -1}),
        (HAT, {"helper_epochs": 0}),
        (GradAlign, {"lam_align": -0.2}),
        (UIATPlugIn, {"lam": -1}),
        (SAT, {"label_smoothing": 1.5}),
        (PGD, {"eps": 8}),
        (PGD, {"steps": -1}),
        (FGSM, {"alpha": -1}),
        (NFGSM, {"noise": -1}),
        (InstanceInverse, {"beta": -1}),
        (UniversalInverse, {"step": -1}),
        (UniversalInverse, {"eps": 4}),
        (Momentum, {"gamma": 1.1}),
        (OneOff, {"epoch": -0.1}),
    ],
)
def test_out_of_range(cls: Any, values: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        cls(**values)


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        (Schedule, {"lr": 0, "warmup": 0, "milestones": (), "factor": 1}),
        (Training, {"momentum": 0, "weight_decay": 0, "micro_batch": None}),
        (PGD, {"eps": 0, "step": None, "steps": 0}),
        (PGD, {"eps": 3.0, "norm": "l2"}),
        (UniversalInverse, {"eps": 0, "beta": 0}),
        (UIAT, {"lam": 0}),
        (Momentum, {"gamma": 0, "start": 75}),
        (Momentum, {"gamma": 1, "start": 0}),
        (OneOff, {"epoch": 75}),
        (DataConfig, {"size": (8, 9), "subset": None}),
    ],
)
def test_the_edges_stay_legal(cls: Any, values: dict[str, Any]) -> None:
    cls(**values)


def test_a_path_names_the_field() -> None:
    with unchecked():
        config, broken = tiny("uiat", schedule=Schedule(warmup=2)), Schedule(low_momentum=3)
    with pytest.raises(UserError, match=r"train\.schedule\.warmup .*2.* 0 .* 1"):
        check(config)
    with pytest.raises(UserError, match=r"^--low-momentum is 3: "):
        check_numbers(broken, "--")


def test_the_radius_of_validation_is_in_the_norm_of_the_attack() -> None:
    config = tiny("uiat")
    with pytest.raises(UserError, match=r"validate\.eps .*8.*8/255"):
        check(replace(config, validate=Validation(eps=8.0)))
    check(replace(config, validate=Validation(eps=8.0, norm="l2")))


def test_a_file_with_such_a_number_is_refused(run_copy: RunFolder) -> None:
    saved = json.loads(run_copy.config.read_text(encoding="utf-8"))
    saved["method"]["lam"] = -3
    run_copy.config.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json: method\.lam is -3"):
        run_copy.read_config()


@dataclass(frozen=True)
class Mine:
    """A custom attack whose field names also occur in this package."""

    eps: float = 8 / 255
    decay: float = 1.2
    momentum: float = -3.0
    patience: float = inf

    @property
    def radius(self) -> float:
        return self.eps

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws | None = None) -> Tensor:
        return x


def test_fields_of_custom_dataclasses_are_not_restricted() -> None:
    check_numbers(Mine(), "attack.")
    Method(DataSpec(10, 100, (1, 8, 8)), attack=Mine(), terms=[Weighted("ce", ce_adversarial, -1.0)])
