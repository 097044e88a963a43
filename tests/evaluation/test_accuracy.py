"""Accuracy, against a plain loop."""

import pytest
import torch
from torch import nn

from tests.engine.runs import splits
from uiat.attacks import PGD
from uiat.evaluation.accuracy import Accuracy, accuracy

IMAGES = splits().test
ATTACKS = {"natural": None, "fgsm": PGD(eps=0.1, step=0.1, steps=1, start="none"), "random": PGD(eps=0.2, steps=3)}


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 10)]
    return nn.Sequential(*layers)


def plain_loop(model: nn.Module, attack: PGD | None) -> list[bool]:
    model.eval()
    verdicts = []
    for x, y in zip(IMAGES.x.float() / 255, IMAGES.y, strict=True):
        x_adv = x[None] if attack is None else attack(model, x[None], y[None])
        verdicts.append(bool(model(x_adv).argmax() == y))
    model.train()
    return verdicts


@pytest.mark.parametrize("name", ["natural", "fgsm"])
@pytest.mark.parametrize("batch_size", [7, 40, 1000])
def test_it_is_a_plain_loops(name: str, batch_size: int, model: nn.Module) -> None:
    found = accuracy(model, IMAGES, ATTACKS[name], batch_size=batch_size)
    expected = plain_loop(model, ATTACKS[name])
    assert found.correct.tolist() == expected
    assert found.value == sum(expected) / len(expected)
    assert 0 < sum(expected) < len(expected)


@pytest.mark.parametrize("name", ATTACKS)
def test_the_model_is_left_alone(name: str, model: nn.Module) -> None:
    model.train()
    model[1].eval()  # type: ignore[index]
    model[0].weight.requires_grad_(False)  # type: ignore[index]
    modes = [module.training for module in model.modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    accuracy(model, IMAGES, ATTACKS[name])
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [p.requires_grad for p in model.parameters()] == [False, True, True, True, True, True]
    assert all(p.grad is None for p in model.parameters())


def test_a_seed_decides_the_random_starts(model: nn.Module) -> None:
    attack = PGD(eps=0.5, step=0.0, steps=1)  # nothing but the start
    seeds = [accuracy(model, IMAGES, attack, seed=seed).correct for seed in (0, 0, 1)]
    assert torch.equal(seeds[0], seeds[1])
    assert not torch.equal(seeds[0], seeds[2])


def test_progress_is_told(model: nn.Module) -> None:
    told: list[int] = []
    accuracy(model, IMAGES, None, batch_size=16, advance=told.append)
    assert told == [16, 16, 8]


def test_the_record() -> None:
    found = Accuracy(torch.tensor([True, True, False, True]), 1.23456).to_json()
    assert (found["accuracy"], found["n"], found["seconds"]) == (0.75, 4, 1.235)
    assert found["interval95"] == pytest.approx([0.3006, 0.9544], abs=1e-4)
