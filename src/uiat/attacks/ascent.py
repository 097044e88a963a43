"""The only gradient loop: every attack climbs with it, every inverse attack descends."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from uiat.balls import Ball
from uiat.precision import attack_scale

Gradient = Callable[[Tensor], Tensor]


def gradient_of(objective: Callable[[Tensor], Tensor]) -> Gradient:
    """Turn a scalar objective into its gradient; no other gradient is computed or left behind."""

    def gradient(at: Tensor) -> Tensor:
        with torch.enable_grad():
            at = at.detach().requires_grad_()
            scale = attack_scale(at.device)
            value = objective(at)
            (result,) = torch.autograd.grad(value if scale == 1 else scale * value, at)
        return result

    return gradient


def ascend(
    gradient: Gradient, start: Tensor, ball: Ball, *, step: float, steps: int, direction: Literal[1, -1] = 1
) -> Tensor:
    """Take `steps` projected gradient steps from `start`: up for an adversary (+1), down for an inverse one (−1)."""
    at = start.detach()
    for _ in range(steps):
        at = ball.move(at, gradient(at), direction * step)
    return at
