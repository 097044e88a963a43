"""Losses compared with definitions, and gradients with finite differences."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.contract_setting import network, samples
from uiat.objectives.divergence import best_other, kl_divergence, margin
from uiat.objectives.inverse_loss import inverse_loss
from uiat.objectives.terms import GradientAlignment
from uiat.rng import Draws
from uiat.targets.universal import add_clipped
from uiat.types import Batch, View


def test_kl_is_the_definition() -> None:
    g = torch.Generator().manual_seed(0)
    p, q = (torch.rand(5, 4, generator=g, dtype=torch.float64).softmax(1) for _ in range(2))
    expected = torch.stack(
        [
            sum((a * (a / b).log() for a, b in zip(x, y, strict=True)), p.new_zeros(()))
            for x, y in zip(p, q, strict=True)
        ]
    )
    torch.testing.assert_close(kl_divergence(p.log(), q.log()), expected)


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_kl_is_finite_where_p_vanishes(scale: float) -> None:
    logits_p = (scale * torch.tensor([[1.0, -1.0, 0.0]])).requires_grad_()
    logits_q = (scale * torch.tensor([[-1.0, 1.0, 0.5]])).requires_grad_()
    value = kl_divergence(logits_p.log_softmax(1), logits_q.log_softmax(1)).sum()
    value.backward()
    assert torch.isfinite(value)
    for leaf in (logits_p, logits_q):
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all()


def test_margin_and_best_other() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    y = torch.tensor([0, 2])
    assert best_other(logits, y).tolist() == [2.0, 5.0]
    assert margin(logits, y).tolist() == [-1.0, 1.0]


def test_gradient_of_z_is_taken_through_the_clip() -> None:
    """Against finite differences; a pixel that the clip holds contributes exactly nothing."""
    model = network().eval()
    x, y = samples()
    x_adv = (x + 0.05 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)).clamp(0, 1)
    loss = inverse_loss(model, x[:6], y[:6], x_adv[:6], beta=1.0)
    z = 0.05 * torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(2), dtype=x.dtype)

    def objective(at: Tensor) -> Tensor:
        return loss(add_clipped(x[:6], at, y[:6])).sum()

    at = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(objective(at), at)
    for entry in range(0, 192, 7):
        bump = torch.zeros_like(z).flatten()
        bump[entry] = 1e-6
        slope = (objective(z + bump.view_as(z)) - objective(z - bump.view_as(z))) / 2e-6
        torch.testing.assert_close(gradient.flatten()[entry], slope.detach(), rtol=1e-3, atol=1e-6)
    held = ((x[:6] + z[y[:6]]) < 0) | ((x[:6] + z[y[:6]]) > 1)
    for c in range(3):
        everywhere = held[y[:6] == c].all(dim=0)
        assert everywhere.any()
        assert (gradient[c][everywhere] == 0).all()


def test_features_of_x_and_x_adv_are_constants() -> None:
    model = network().eval()
    x, y = samples()
    x = x.requires_grad_()
    loss = inverse_loss(model, x, y, x * 0.9, beta=1.0)(x.detach() * 0.95)
    assert torch.autograd.grad(loss.sum(), x, allow_unused=True)[0] is None


def test_gradient_alignment_against_finite_differences() -> None:
    """The double backward: the slope of the term in a weight, with the gradient at x held fixed."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, y = torch.rand(4, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    view = View(model, Batch(x, y), x, Draws(3), "train")
    (GradientAlignment(0.1)(view)).backward()
    near = x + 0.1 * Draws(3).uniform("align", x)

    def input_gradient(at: Tensor) -> Tensor:
        at = at.clone().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(model(at), y), at)[0]

    fixed = input_gradient(x)
    weight = model[0].weight
    analytic = weight.grad.clone()
    for i, j in [(0, 0), (2, 3), (5, 4)]:
        values = []
        for bump in (1e-6, -1e-6):
            with torch.no_grad():
                weight[i, j] += bump
            values.append(1 - F.cosine_similarity(fixed, input_gradient(near), dim=1).mean())
            with torch.no_grad():
                weight[i, j] -= bump
        torch.testing.assert_close(analytic[i, j], (values[0] - values[1]) / 2e-6, rtol=1e-4, atol=1e-8)


def test_gradient_alignment_without_any_gradient_is_zero_and_finite() -> None:
    model = nn.Linear(4, 2)
    nn.init.zeros_(model.weight)
    x, y = torch.rand(3, 4), torch.tensor([0, 1, 0])
    term = GradientAlignment(0.1)(View(model, Batch(x, y), x, Draws(), "train"))
    term.backward()
    assert term == 0
    assert model.weight.grad is None or torch.isfinite(model.weight.grad).all()
