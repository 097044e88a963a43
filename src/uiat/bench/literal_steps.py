"""Literal training steps, as in papers and their public code: the references of the benchmark.

They use the default memory format, do not fold BatchNorm, do not freeze parameters, and predict the clean images again
at every step of the attack; TRADES does so once more for the robust term, as in its authors' code.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LiteralStep = Callable[[Tensor, Tensor], None]
"""A training step on (x, y)."""
EPS, ALPHA, ATTACK_STEPS = 8 / 255, 2 / 255, 10


def literal_natural(model: nn.Module, optimizer: torch.optim.Optimizer) -> LiteralStep:
    """Return a step on CE(f(x), y)."""

    def step(x: Tensor, y: Tensor) -> None:
        model.train()
        _descend(optimizer, F.cross_entropy(model(x), y))

    return step


def literal_trades(model: nn.Module, optimizer: torch.optim.Optimizer, omega: float = 6.0) -> LiteralStep:
    """Return a step on CE(f(x), y) + ω·KL(f(x) ‖ f(x̂))."""

    def step(x: Tensor, y: Tensor) -> None:
        x_adv = _attack(model, x)
        model.train()
        natural = F.cross_entropy(model(x), y)
        robust = _kl(model(x_adv), model(x)) / len(x)
        _descend(optimizer, natural + omega * robust)

    return step


def literal_hat(model: nn.Module, optimizer: torch.optim.Optimizer, helper: nn.Module) -> LiteralStep:
    """Return a step on CE(f(x), y) + 2.5·KL(f(x) ‖ f(x̂)) + 0.5·CE(f(x + 2(x̂ − x)), helper(x̂))."""
    helper.eval()

    def step(x: Tensor, y: Tensor) -> None:
        x_adv = _attack(model, x)
        model.train()
        beyond = x + 2 * (x_adv - x)
        with torch.no_grad():
            label = helper(x_adv).argmax(dim=1)
        clean = model(x)
        loss = F.cross_entropy(clean, y) + 2.5 * _kl(model(x_adv), clean) / len(x)
        _descend(optimizer, loss + 0.5 * F.cross_entropy(model(beyond), label))

    return step


def _attack(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    x_adv = x.detach() + 0.001 * torch.randn_like(x)
    for _ in range(ATTACK_STEPS):
        x_adv.requires_grad_()
        loss = _kl(model(x_adv), model(x))
        (gradient,) = torch.autograd.grad(loss, [x_adv])
        x_adv = x_adv.detach() + ALPHA * torch.sign(gradient.detach())
        x_adv = torch.min(torch.max(x_adv, x - EPS), x + EPS)
        x_adv = torch.clamp(x_adv, 0.0, 1.0)
    return x_adv


def _kl(adversarial: Tensor, clean: Tensor) -> Tensor:
    """Return Σ KL(f(x) ‖ f(x̂)) over the batch."""
    return F.kl_div(F.log_softmax(adversarial, dim=1), F.softmax(clean, dim=1), reduction="sum")


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
