"""Attacks in fp16 find the signs of float32, for large and small gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from uiat.attacks import FGSM, PGD
from uiat.attacks.ascent import BACK_OFF, SMALLEST, gradient_of
from uiat.objectives.inverse_loss import inverse_loss
from uiat.precision import ATTACK_SCALE, autocast, is_fp16
from uiat.rng import Draws
from uiat.targets import InstanceInverse, UniversalInverse, UniversalInverseTarget
from uiat.types import Batch, Clock, DataSpec, View

CPU = torch.device("cpu")
N, WIDE = 6, 12
X = torch.rand(N, WIDE, generator=torch.Generator().manual_seed(1)) * 0.5 + 0.25
Y = torch.arange(N) % 3


class Net(nn.Module):
    """A linear classifier with gradients of given sizes, one for all samples or one for each."""

    def __init__(self, *sizes: float):
        super().__init__()
        self.layer = nn.Linear(WIDE, 3)
        self.passes, self.sizes = 0, torch.tensor(sizes)[:, None]
        g = torch.Generator().manual_seed(0)
        with torch.no_grad():
            signs = torch.randint(0, 2, (3, WIDE), generator=g) * 2.0 - 1
            self.layer.weight.copy_(signs * (0.5 + torch.rand(3, WIDE, generator=g)))
            self.layer.bias.zero_()
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        zero = x - x.detach()  # the gradient goes through it, in the precision of the network
        zero = zero.half() if is_fp16(CPU) else zero
        return self.layer(zero * self.sizes.to(zero.dtype) + x.detach())  # type: ignore[no-any-return]


def signs(model: Net, precision: Any) -> Tensor:
    attack = PGD(eps=0.1, step=0.1, steps=1, start="none")
    with autocast(CPU, precision):
        return (attack(model, X, Y) - X).sign()


SIZES = [2e-7, 1e-3, 1.0, 80.0, 1e3, 1e4, 3e4]


@pytest.mark.parametrize("size", SIZES)
def test_signs_are_those_of_float32(size: float) -> None:
    model = Net(size)
    expected = signs(model, "fp32")
    assert expected.abs().min() == 1
    assert torch.equal(signs(model, "fp16"), expected)


@pytest.mark.parametrize("size", SIZES)
def test_every_attack_moves(size: float) -> None:
    model = Net(size)
    spec = DataSpec(3, N, (WIDE,))
    for attack in (PGD(steps=3), PGD(loss="margin", norm="l2", eps=0.5, step=0.1), FGSM()):
        results = []
        for precision in ("fp32", "fp16"):
            with autocast(CPU, precision):
                results.append(attack(model, X, Y))
        torch.testing.assert_close(*results, rtol=0, atol=2e-3)
        assert (results[1] - X).abs().max() > 1e-3
    for inverse in (InstanceInverse(beta=0, start="none"), UniversalInverse(beta=0)):
        results = []
        for precision in ("fp32", "fp16"):
            with autocast(CPU, precision):  # type: ignore[arg-type]
                if isinstance(inverse, InstanceInverse):
                    results.append(inverse(model, X, Y, X))
                else:
                    target = UniversalInverseTarget(inverse, spec)
                    views = [View(model, part, part.x, Draws(), "eval") for part in Batch(X, Y).split(4)]
                    target.prepare(model, views, Clock(1, 0, 2))
                    results.append(target.z)
        torch.testing.assert_close(*results, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("precision", "rounding"), [("bf16", 2.0**-9), ("fp16", 2.0**-12)])
def test_the_feature_term_is_that_of_float32(precision: Any, rounding: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDE, 16), nn.SiLU(), nn.Linear(16, 3)).requires_grad_(False)
    found = []
    for each in ("fp32", precision):
        with autocast(CPU, each):
            found.append(inverse_loss(model, X, Y, 1 - X, beta=1.0, reduction="sum")(X**2))
    largest = model[1](model[0](X)).abs().sum()
    # Two layers, each with rounded input, weights and output, and features of three points.
    assert (found[1] - found[0]).abs().max() <= 2 * 3 * 3 * rounding * largest


def test_a_large_gradient_costs_a_small_one_nothing() -> None:
    """One sample overflows at every scale but the smallest ones; the others would be 0 there."""
    model = Net(3e4, 1e-5, 1.0, 3e4, 2e-7, 1e2)
    assert torch.equal(signs(model, "fp16"), signs(model, "fp32"))


def test_a_scale_is_kept_while_the_attack_lasts() -> None:
    model = Net(1e3)
    with autocast(CPU, "fp16"):
        PGD(steps=5)(model, X, Y)
    assert model.passes == 5 + 1  # one step was repeated
    model.passes = 0
    PGD(steps=5)(model, X, Y)
    assert model.passes == 5


def test_what_is_not_finite_at_any_scale_ends() -> None:
    seen: list[int] = []

    def objective(at: Tensor) -> Tensor:
        seen.append(1)
        values: Tensor = at.sum(dim=1) * torch.tensor([1.0, torch.nan])
        return values

    slope = gradient_of(objective)
    with autocast(CPU, "fp16"):
        found = slope(torch.ones(2, 3))
        assert torch.equal(found[0], torch.ones(3))
        assert found[1].isnan().all()
        tries = len(seen)
        assert ATTACK_SCALE / BACK_OFF ** (tries - 1) <= SMALLEST
        slope(torch.ones(2, 3))
    assert len(seen) == tries + 1


def test_a_sum_has_one_scale() -> None:
    """A loss that is already a sum gets the gradient of the sum."""
    model = Net(1e3)
    slope = gradient_of(lambda at: nn.functional.cross_entropy(model(at).float(), Y, reduction="sum"))
    expected = slope(X)
    with autocast(CPU, "fp16"):
        found = slope(X)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=1.0)


def test_only_fp16_is_scaled() -> None:
    assert not is_fp16(CPU)
    with autocast(CPU, "bf16"):
        assert not is_fp16(CPU)
    with autocast(CPU, "fp16"):
        assert is_fp16(CPU)
