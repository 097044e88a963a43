"""Accuracy against ε: ranks by hand, verdicts compared with a plain loop, and resuming."""

from math import inf, nan
from pathlib import Path

import pytest
import torch

from tests.support.uiat_run import EPS, images, precise
from uiat.attacks import PGD
from uiat.data.images import Images
from uiat.errors import UserError
from uiat.evaluation.curve_measurement import (
    default_grid,
    easier_half,
    measure,
    natural_losses,
    plan_points,
)
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.suite import Plan, accuracy
from uiat.rng import SampleDraws
from uiat.targets import InstanceInverse

BASE = PGD(eps=EPS, step=None, steps=20)
GRID = (-EPS, 0.0, EPS / 2, EPS)


def some() -> Images:
    return images().test.take(torch.arange(40))


def points(grid: tuple[float, ...] = GRID, attack: str = "pgd-4", base: PGD = BASE) -> tuple[Plan, ...]:
    return plan_points(grid, attack, base, num_classes=10, seed=3)


def test_the_easier_half_has_the_lower_losses() -> None:
    assert easier_half(torch.tensor([3.0, 1.0, 2.0, 9.0])).tolist() == [False, True, True, False]


def test_ties_go_by_place_and_the_odd_one_is_easier() -> None:
    assert easier_half(torch.tensor([1.0, 1.0, 1.0, 1.0])).tolist() == [True, True, False, False]
    assert easier_half(torch.tensor([5.0, 1.0, 1.0, 1.0, 0.0])).tolist() == [False, True, True, False, True]


def test_one_image_has_no_halves() -> None:
    with pytest.raises(UserError, match="at least two images"):
        easier_half(torch.tensor([1.0]))


def test_losses_are_those_of_a_plain_loop() -> None:
    model, test = precise(), images().test
    found = natural_losses(model, test, batch_size=50, device="cpu")
    for place in (0, 7, 119):
        log_p = model(test.x[place, None].float() / 255).log_softmax(dim=1)[0]
        assert float(found[place]) == pytest.approx(-float(log_p[test.y[place]]), abs=1e-5)


def test_the_grid_of_the_paper() -> None:
    assert default_grid(8 / 255) == pytest.approx([k / 255 for k in range(-8, 17, 2)])
    assert default_grid(8 / 255)[8] == 8 / 255  # exactly, so that it is the evaluation's own number
    with pytest.raises(UserError, match="there is no grid around it"):
        default_grid(0)


def test_what_happens_at_each_radius() -> None:
    found = points((0.1, 0.0, -0.2, 0.1), base=PGD(eps=0.2, step=0.1))
    assert [(p.eps, p.name) for p in found] == [(-0.2, "inverse"), (0.0, "natural"), (0.1, "pgd-4")]
    inverse, natural, attack = (p.setting for p in found)
    assert natural == {}
    assert (inverse["eps"], inverse["step"], inverse["steps"], inverse["beta"]) == (0.2, 0.05, 20, 0.0)
    assert inverse["start"] == "uniform"
    assert (attack["eps"], attack["step"], attack["steps"]) == (0.1, 0.05, 4)  # the step size is proportional to ε


@pytest.mark.parametrize(
    ("grid", "attack", "message"),
    [
        ((), "pgd-20", "the grid is empty"),
        ((0.0, nan), "pgd-20", "the grid has ε = nan"),
        ((inf,), "pgd-20", "the grid has ε = inf"),
        ((-0.1,), "pdg-20", "'pgd-20'"),
        ((0.1,), "natural", "--attack natural perturbs nothing"),
    ],
)
def test_bad_grids(grid: tuple[float, ...], attack: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        points(grid, attack)
    assert message in str(caught.value)


def plain_inverse(radius: float) -> list[bool]:
    """Lower the loss of every image, one at a time."""
    model, test, verdicts = precise(), some(), []
    inverse = InstanceInverse(eps=radius, step=radius / 4, steps=20, beta=0, start="uniform")
    for place, (x, y) in enumerate(zip(test.x.float() / 255, test.y, strict=True)):
        x_inv = inverse(model, x[None], y[None], x[None], SampleDraws(3, index=(place,)))
        verdicts.append(bool(model(x_inv).argmax() == y))
    return verdicts


def test_verdicts_are_those_of_a_plain_loop() -> None:
    model, test = precise(), some()
    found = measure(model, test, points(), batch_size=16)
    assert found.grid == GRID
    assert found.correct[0].tolist() == plain_inverse(EPS)
    assert torch.equal(found.correct[1], accuracy(model, test, None).correct)
    for place, eps in ((2, EPS / 2), (3, EPS)):
        attack = PGD(eps=eps, step=None, steps=4)
        assert torch.equal(found.correct[place], accuracy(model, test, attack, seed=3).correct)
    assert bool((found.correct[0] & ~found.correct[1]).any()), "an image that becomes correct"


def test_inverse_perturbations_help_and_adversarial_ones_harm() -> None:
    found = measure(precise(), images().test, points()).groups()
    for name, correct in found.items():
        inverse, natural, half, whole = correct.double().mean(dim=1).tolist()
        assert inverse >= natural >= half >= whole, name
        assert inverse > whole, name
    assert found["easier"].shape == found["harder"].shape == (4, 60)
    assert bool((found["easier"].sum(dim=1) >= found["harder"].sum(dim=1)).all())


def test_the_batch_size_changes_no_verdict() -> None:
    few, many = (measure(precise(), some(), points(), batch_size=size) for size in (17, 40))
    assert torch.equal(few.correct, many.correct)
    assert torch.equal(few.easier, many.easier)


class Killed(Exception):
    pass


def test_a_killed_measurement_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, test, file = precise(), some(), tmp_path / "ledger.safetensors"
    whole = measure(model, test, points(), batch_size=16)
    save, calls = Ledger.save, []

    def save_and_die(self: Ledger) -> None:
        save(self)
        calls.append(1)
        if len(calls) == 4:  # within the second radius
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "save", save_and_die)
        with pytest.raises(Killed):
            measure(model, test, points(), batch_size=16, ledger=Ledger(file, "key"))
    rest = Ledger(file, "key")
    assert rest.resumed
    assert torch.equal(measure(model, test, points(), batch_size=16, ledger=rest).correct, whole.correct)


def test_autoattack_is_an_attack_too() -> None:
    few = images().test.take(torch.arange(20))
    found = measure(precise(), few, points((0.0, EPS), "apgd-ce"))
    assert found.points[1].setting["components"] == ["apgd-ce"]
    assert int(found.correct[1].sum()) < int(found.correct[0].sum())
