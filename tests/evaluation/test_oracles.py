"""foolbox and pyautoattack agree with `uiat.evaluate`, image by image, on a network that `uiat.load` returns."""

from pathlib import Path

import pytest
import torch
from pyautoattack.autopgd_base import APGDAttack
from torch import Tensor

import uiat
from tests.evaluation.conftest import SHORT
from tests.unit.test_attacks import fb
from uiat import PGD
from uiat.data import Splits

EPS, N = 0.1, 60


def both(correct: Tensor, theirs: Tensor) -> None:
    """Assert that verdicts are equal and not all the same."""
    assert torch.equal(correct, theirs)
    assert 0 < int(correct.sum()) < len(correct)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_foolbox_agrees(norm: str, robust_run: Path, digits: Splits) -> None:
    model, eps = uiat.load(robust_run), EPS if norm == "linf" else 0.8
    x, y = digits.test.x[:N].float() / 255, digits.test.y[:N]
    attack = (fb.attacks.LinfPGD if norm == "linf" else fb.attacks.L2PGD)(
        abs_stepsize=eps / 4, steps=10, random_start=False
    )
    oracle = fb.PyTorchModel(model, bounds=(0, 1), device="cpu")
    _, x_adv, _ = attack(oracle, x, y, epsilons=eps)
    with torch.no_grad():
        natural, attacked = (model(images).argmax(dim=1) == y for images in (x, x_adv))
    ours = PGD(eps=eps, step=eps / 4, steps=10, start="none", norm=norm)  # type: ignore[arg-type]
    result = uiat.evaluate(model, x, y, ["natural", ours])
    both(result["natural"].correct, natural)
    (found,) = [entry for name, entry in result.items() if name != "natural"]
    both(found.correct, natural & attacked)


def test_a_foolbox_attack_is_an_attack(robust_run: Path, digits: Splits) -> None:
    """As docs/evaluation.md passes it: a function."""
    model = uiat.load(robust_run)
    x, y = digits.test.x[:N].float() / 255, digits.test.y[:N]
    attack = fb.attacks.LinfPGD(abs_stepsize=EPS / 4, steps=5, random_start=False)

    def theirs(model: torch.nn.Module, x: Tensor, y: Tensor) -> Tensor:
        x_adv: Tensor = attack(fb.PyTorchModel(model, bounds=(0, 1), device="cpu"), x, y, epsilons=EPS)[1]
        return x_adv

    ours = PGD(eps=EPS, step=EPS / 4, steps=5, start="none")
    first, second = uiat.evaluate(model, x, y, [ours, theirs], eps=EPS).values()
    both(first.correct, second.correct)


@pytest.mark.usefixtures("short_autoattack")
def test_pyautoattack_agrees(robust_run: Path, digits: Splits) -> None:
    model = uiat.load(robust_run).requires_grad_(False)
    x, y = digits.test.x[:N].float() / 255, digits.test.y[:N]
    attack = APGDAttack(
        model, norm="Linf", eps=EPS, n_iter=SHORT["steps"], n_restarts=1, loss="ce", seed=0, device="cpu"
    )
    with torch.no_grad():
        natural = model(x).argmax(dim=1) == y
        theirs = natural.clone()
        theirs[natural] = model(attack.perturb(x[natural], y[natural])).argmax(dim=1) == y[natural]
    both(uiat.evaluate(model, x, y, "apgd-ce", eps=EPS, batch_size=N)["apgd-ce"].correct, theirs)
