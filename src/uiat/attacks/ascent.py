"""The only gradient loop: every attack climbs with it, every inverse attack descends."""

from collections.abc import Callable
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from uiat.attacks.half import HalfGradient, input_gradient
from uiat.balls import Ball
from uiat.errors import UserError
from uiat.precision import is_fp16

Gradient = Callable[[Tensor], Tensor]


def gradient_of(objective: Callable[[Tensor], Tensor], rows: Tensor | None = None) -> Gradient:
    """Turn an objective into its gradient; no other gradient is computed or left behind.

    Args:
        objective: returns one value per sample, which are summed here, or their sum.
        rows: the row of `at` that each sample depends on; `None`: its own.
    """
    half = HalfGradient(objective, rows)  # remembers its scales from one step of the attack to the next

    def gradient(at: Tensor) -> Tensor:
        with torch.enable_grad():
            at = at.detach().requires_grad_()
            if is_fp16(at.device):
                return half(at)
            return input_gradient(objective(at).sum(), at)

    return gradient


def ascend(
    gradient: Gradient, start: Tensor, ball: Ball, *, step: float, steps: int, direction: Literal[1, -1] = 1
) -> Tensor:
    """Take `steps` projected gradient steps from `start`: up for an adversary (+1), down for an inverse one (−1).

    The start itself need not lie in the ball; the result does.
    """
    if steps < 0 or not isfinite(step):
        raise UserError(f"an attack has {steps} steps of length {step}: give 0 or more, of a finite length.")
    at = start.detach() if steps else ball.project(start.detach())
    for _ in range(steps):
        at = ball.move(at, gradient(at), direction * step)
    return at
