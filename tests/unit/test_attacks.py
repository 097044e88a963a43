"""Attacks stay in their ball, agree with foolbox and their twins, and raise their loss."""

import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.twins import attacks as twin_attacks
from uiat.attacks import ATTACKS, FGSM, NFGSM, PGD, RSFGSM, Attack
from uiat.balls import BALLS
from uiat.rng import Draws

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports scipy.ndimage.filters
    import eagerpy
    import foolbox

ep: Any = eagerpy
fb: Any = foolbox


NORMS: list[Any] = ["linf", "l2"]


def classifier(pixels: int, classes: int = 3, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 8), nn.Tanh(), nn.Linear(8, classes)).to(dtype)
    return net.eval()


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)
radii = st.floats(0, 1.5, allow_subnormal=False)


@st.composite
def attacks(draw: st.DrawFn) -> Attack:
    eps = draw(st.floats(0, 1, allow_subnormal=False))
    kinds: list[Attack] = [
        PGD(
            eps=eps,
            step=draw(st.one_of(st.none(), radii)),
            steps=draw(st.integers(0, 4)),
            start=draw(st.sampled_from(["uniform", "gaussian", "none"])),
            loss=draw(st.sampled_from(["ce", "kl", "margin"])),
            norm=draw(st.sampled_from(["linf", "l2"])),
        ),
        FGSM(eps, alpha=draw(radii)),
        RSFGSM(eps, alpha=draw(radii)),
        NFGSM(eps, noise=draw(radii), alpha=draw(radii)),
    ]
    return kinds[draw(st.integers(0, 3))]


@settings(max_examples=60)
@given(attack=attacks(), shape=shapes, n=st.integers(1, 4), seed=st.integers(0, 99))
def test_stays_within_its_radius_and_the_pixels(attack: Attack, shape: tuple[int, ...], n: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    x = (torch.rand(n, *shape, generator=g) * 1.4 - 0.2).clamp(0, 1)
    before = x.clone()
    x_adv = attack(classifier(x[0].numel(), seed=seed), x, torch.arange(n) % 3, Draws(seed))
    assert torch.equal(x, before)
    assert x_adv.shape == x.shape
    assert not x_adv.requires_grad
    assert x_adv.min() >= 0
    assert x_adv.max() <= 1
    distance = (x_adv - x).flatten(1).norm(dim=1, p=2 if getattr(attack, "norm", "linf") == "l2" else torch.inf)
    assert distance.max() <= attack.radius + 1e-6


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("start", ["none", "uniform"])
def test_pgd_agrees_with_foolbox(norm: Any, start: str) -> None:
    """The same start, ε, step and number of steps give the same examples as foolbox."""
    model = classifier(36, seed=4)
    g = torch.Generator().manual_seed(8)
    x, y = torch.rand(20, 1, 6, 6, generator=g), torch.arange(20) % 3
    eps, step, steps = (0.1, 0.02, 12) if norm == "linf" else (0.7, 0.15, 12)
    ours = PGD(eps=eps, step=step, steps=steps, start="uniform" if start == "uniform" else "none", norm=norm)
    base = fb.attacks.LinfPGD if norm == "linf" else fb.attacks.L2PGD

    class SameStart(base):  # type: ignore[misc, valid-type]
        def get_random_start(self, x0: Any, epsilon: float) -> Any:
            return ep.astensor(BALLS[norm](x, eps).random(Draws(5), "attack"))

    theirs = SameStart(abs_stepsize=step, steps=steps, random_start=start == "uniform")
    oracle = fb.PyTorchModel(model, bounds=(0, 1), device="cpu")
    _, expected, _ = theirs(oracle, x, y, epsilons=eps)
    torch.testing.assert_close(ours(model, x, y, Draws(5)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", ["ce", "kl", "margin"])
def test_pgd_equals_its_twin(loss: Any, norm: Any) -> None:
    model = classifier(12, dtype=torch.float64)
    x, y = torch.rand(7, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), torch.arange(7) % 3
    ours = PGD(eps=0.2, step=0.06, steps=5, loss=loss, norm=norm)(model, x, y, Draws(3, 1, 2))
    theirs = twin_attacks.pgd(
        model, x, y, Draws(3, 1, 2), eps=0.2, step=0.06, steps=5, loss=loss, norm=norm, start="uniform"
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ATTACKS)
def test_raises_the_loss_even_within_no_grad(name: str) -> None:
    model = classifier(16)
    x, y = torch.rand(64, 16, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3
    with torch.no_grad():
        x_adv = ATTACKS[name](model, x, y, Draws())
        before, after = (nn.functional.cross_entropy(model(a), y) for a in (x, x_adv))
    assert after > before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_l2_start_fills_the_ball_uniformly() -> None:
    """In d dimensions the radius of a uniform point is ε·u^(1/d): a fraction r^d lies within r."""
    x = torch.full((20_000, 3), 0.5)
    points = PGD(eps=0.2, steps=0, norm="l2")(nn.Identity(), x, torch.zeros(20_000, dtype=torch.long))
    radius = (points - x).norm(dim=1) / 0.2
    for r in (0.3, 0.6, 0.9):
        assert abs(float((radius <= r).double().mean()) - r**3) < 0.02


def test_zero_gradient_moves_nothing() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)[:, :2] * 0

    x, y = torch.rand(4, 2, 3), torch.zeros(4, dtype=torch.long)
    for norm in NORMS:
        assert torch.equal(PGD(eps=0.3, start="none", norm=norm)(Flat(), x, y), x)


def test_step_none_is_a_quarter_of_eps() -> None:
    model, x, y = classifier(4), torch.rand(5, 4), torch.arange(5) % 3
    quarter, none = PGD(eps=0.4, step=0.1)(model, x, y), PGD(eps=0.4, step=None)(model, x, y)
    assert torch.equal(quarter, none)
