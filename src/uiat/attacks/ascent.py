"""The gradient loop of all attacks and inverse attacks."""

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
    """Return the gradient function of an objective; it computes and accumulates no other gradient.

    Args:
        objective: returns one value per sample (they are summed here) or their sum.
        rows: the row of `at` that each sample depends on; `None`: sample i depends on row i.
    """
    half = HalfGradient(objective, rows)  # keeps its scales over the steps of the attack

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
    """Take `steps` projected gradient steps from `start`: ascent for an attack (+1), descent for an inverse one (−1).

    The start may lie outside the ball; the result does not.
    """
    if steps < 0 or not isfinite(step):
        raise UserError(f"an attack has {steps} steps of size {step}: give 0 or more steps, of a finite size.")
    at = start.detach() if steps else ball.project(start.detach())
    for _ in range(steps):
        at = ball.move(at, gradient(at), direction * step)
    return at
