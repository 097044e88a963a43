"""Attacks by name, and unknown names."""

from typing import Any

import pytest
import torch
from torch import nn

from uiat import UserError
from uiat.attacks import FGSM, PGD
from uiat.evaluation.cascade import Restart
from uiat.evaluation.suite import plan_attack

BASE = PGD(eps=0.3, step=0.1, steps=20)
UNKNOWN = ["pgd", "pgd-0", "pgd--1", "pgd-x", "pgd-5-0", "PGD-20", "autoatack", "autoattacks", "apgd-ce+cw", ""]


def attacks(name: str, base: PGD = BASE) -> list[Any]:
    plan = plan_attack(name, base, num_classes=10, seed=5)
    assert all(isinstance(part, Restart) and part.seed == 5 for part in plan.components)
    return [part.attack for part in plan.components if isinstance(part, Restart)]


def test_attacks_of_ours() -> None:
    l2 = PGD(eps=1.5, step=None, norm="l2")
    assert attacks("natural") == []
    assert attacks("pgd-7") == [PGD(eps=0.3, step=0.1, steps=7)]
    assert attacks("pgd-50-3", l2) == 3 * [PGD(eps=1.5, step=None, steps=50, norm="l2")]
    assert attacks("pgd-margin-4") == [PGD(eps=0.3, step=0.1, steps=4, loss="margin")]
    (cw,) = attacks("cw", PGD(eps=8 / 255))
    assert (cw.steps, cw.step, cw.loss) == (40, pytest.approx(0.01), "margin")


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_names(name: str) -> None:
    with pytest.raises(UserError, match="unknown attack"):
        plan_attack(name, BASE, num_classes=10, seed=0)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_fgsm_stays_in_the_ball_of_its_norm(norm: str) -> None:
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), torch.rand(5, 1, 8, 8), torch.arange(5)
    (attack,) = attacks("fgsm", PGD(eps=0.3, norm=norm))  # type: ignore[arg-type]
    delta = (attack(model, x, y) - x).flatten(1)
    length = delta.abs().amax(dim=1) if norm == "linf" else delta.norm(dim=1)
    assert (length <= 0.3 + 1e-6).all()
    assert (length > 0.2).all()
    if norm == "linf":
        torch.testing.assert_close(attack(model, x, y), FGSM(eps=0.3)(model, x, y))
