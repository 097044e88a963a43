"""Attacks by name."""

import pytest
import torch
from torch import nn

from tests.engine.runs import splits
from uiat import UserError
from uiat.attacks import FGSM, PGD
from uiat.evaluation.suite import named_attack, run_suite

BASE = PGD(eps=0.3, step=0.1, steps=20)


def test_names() -> None:
    assert named_attack("natural", BASE) is None
    assert named_attack("pgd-7", BASE) == PGD(eps=0.3, step=0.1, steps=7)
    assert named_attack("pgd-50", PGD(eps=1.5, step=None, norm="l2")) == PGD(eps=1.5, step=None, steps=50, norm="l2")


@pytest.mark.parametrize("name", ["pgd", "pgd-0", "pgd--1", "pgd-x", "PGD-20", "autoatack", ""])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UserError, match="unknown attack"):
        named_attack(name, BASE)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_fgsm_stays_in_the_ball_of_its_norm(norm: str) -> None:
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), torch.rand(5, 1, 8, 8), torch.arange(5)
    attack = named_attack("fgsm", PGD(eps=0.3, norm=norm))  # type: ignore[arg-type]
    assert attack is not None
    delta = (attack(model, x, y) - x).flatten(1)
    length = delta.abs().amax(dim=1) if norm == "linf" else delta.norm(dim=1)
    assert (length <= 0.3 + 1e-6).all()
    assert (length > 0.2).all()
    if norm == "linf":
        torch.testing.assert_close(attack(model, x, y), FGSM(eps=0.3)(model, x, y))


def test_a_suite() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    told: list[int] = []
    found = run_suite(
        model,
        splits().test,
        ["natural", "fgsm", "pgd-5"],
        BASE,
        batch_size=20,
        seed=0,
        device="cpu",
        advance=told.append,
    )
    assert list(found) == ["natural", "fgsm", "pgd-5"]
    assert sum(told) == 3 * len(splits().test)
    assert found["natural"].value >= found["fgsm"].value


@pytest.mark.parametrize("eps", [-0.1, float("nan"), float("inf")])
def test_a_radius_that_is_none(eps: float) -> None:
    with pytest.raises(UserError, match="a radius is a number from 0 on"):
        run_suite(nn.Flatten(), splits().test, ["natural"], PGD(eps=eps), batch_size=20, seed=0, device="cpu")
