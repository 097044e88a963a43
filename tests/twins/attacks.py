"""Twins of the attacks: PGD in two norms and on three losses, and the single-step attacks.

Each runs on the whole batch with a summed loss. With running statistics this is the same as one sample after
the other; with batch statistics (crafting "train") it is what one forward of the batch means.
"""

import torch
from torch import Tensor, nn

from .basics import Draws, crafting, cross_entropy, gradient, kl_logits, logits, margin, total


def project_linf(x_hat: Tensor, x: Tensor, eps: float) -> Tensor:
    return torch.minimum(torch.maximum(x_hat, x - eps), x + eps)


def project_l2(x_hat: Tensor, x: Tensor, eps: float) -> Tensor:
    rows = []
    for j in range(len(x)):
        delta = x_hat[j] - x[j]
        length = float(delta.norm())
        rows.append(x[j] + delta * (eps / length) if length > eps else x_hat[j])
    return torch.stack(rows)


def project(x_hat: Tensor, x: Tensor, eps: float, norm: str) -> Tensor:
    """Into the ball around x first, then into [0, 1]."""
    inside = {"linf": project_linf, "l2": project_l2}[norm](x_hat, x, eps)
    return inside.clamp(0, 1)


def ascend(x_hat: Tensor, g: Tensor, step: float, norm: str) -> Tensor:
    """One step of length `step` uphill; where the gradient of an L2 step vanishes, no step."""
    if norm == "linf":
        return x_hat + step * g.sign()
    rows = []
    for j in range(len(g)):
        length = float(g[j].norm())
        rows.append(x_hat[j] + step * g[j] / length if length > 0 else x_hat[j])
    return torch.stack(rows)


def random_start(x: Tensor, eps: float, norm: str, start: str, draws: Draws) -> Tensor:
    if start == "none":
        return x.clone()
    if start == "gaussian":
        return x + 0.001 * draws.normal("attack", x)
    if start != "uniform":
        raise ValueError(start)
    if norm == "linf":
        return x + eps * draws.uniform("attack", x)
    direction = draws.normal("attack", x)
    u = (draws.uniform("radius", x.flatten(1)[:, :1]) + 1) / 2
    rows = []
    for j in range(len(x)):
        radius = eps * float(u[j, 0]) ** (1 / x[j].numel())
        rows.append(x[j] + radius * direction[j] / direction[j].norm())
    return torch.stack(rows)


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    draws: Draws,
    *,
    eps: float,
    step: float,
    steps: int,
    loss: str = "ce",
    norm: str = "linf",
    start: str = "uniform",
    mode: str = "eval",
) -> Tensor:
    """`steps` times x_hat <- clip(proj(x_hat + step * sign(gradient of the loss))), from a random start.

    loss "ce": CE(f(x_hat), y); "kl": KL(f(x) || f(x_hat)) with f(x) fixed; "margin": max_{k != y} f_k - f_y.
    """
    with crafting(model, mode):
        if loss == "kl":
            with torch.no_grad():
                clean = logits(model, x)
        x_hat = random_start(x, eps, norm, start, draws)
        if start != "gaussian":  # TRADES, MART and HAT take the first gradient at the noisy point, which is not clipped
            x_hat = project(x_hat, x, eps, norm)
        for _ in range(steps):
            x_hat = x_hat.detach().clone().requires_grad_()
            out = logits(model, x_hat)
            if loss == "ce":
                losses = cross_entropy(out, y)
            elif loss == "kl":
                losses = kl_logits(clean, out)
            elif loss == "margin":
                losses = margin(out, y)
            else:
                raise ValueError(loss)
            g = gradient(total(losses), x_hat)
            x_hat = project(ascend(x_hat.detach(), g, step, norm), x, eps, norm)
    return x_hat.detach()


def gradient_at(model: nn.Module, point: Tensor, y: Tensor, mode: str) -> Tensor:
    """The gradient of CE at a point."""
    with crafting(model, mode):
        point = point.detach().clone().requires_grad_()
        return gradient(total(cross_entropy(logits(model, point), y)), point)


def sign_at(model: nn.Module, point: Tensor, y: Tensor, mode: str) -> Tensor:
    return gradient_at(model, point, y, mode).sign()


def rs_fgsm_attack(
    model: nn.Module, x: Tensor, y: Tensor, draws: Draws, *, eps: float, alpha: float, mode: str
) -> Tensor:
    """Start anywhere in the ball, one step of alpha * eps (1.25 eps), back into the ball, clip."""
    start = (x + eps * draws.uniform("attack", x)).clamp(0, 1)
    return project(start + alpha * eps * sign_at(model, start, y, mode), x, eps, "linf")


def n_fgsm_attack(
    model: nn.Module, x: Tensor, y: Tensor, draws: Draws, *, eps: float, alpha: float, noise: float, mode: str
) -> Tensor:
    """Noise in +-noise * eps (2 eps), a step of alpha * eps (eps): clipped to [0, 1], not to the ball."""
    start = (x + noise * eps * draws.uniform("attack", x)).clamp(0, 1)
    return (start + alpha * eps * sign_at(model, start, y, mode)).clamp(0, 1)


def fgsm_attack(x: Tensor, g: Tensor, *, eps: float, alpha: float) -> Tensor:
    """From x itself, one step of alpha * eps (1.25 eps) along the sign of its gradient, back into the ball, clip."""
    return project(x + alpha * eps * g.sign(), x, eps, "linf")
