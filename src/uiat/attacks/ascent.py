"""The gradient loop of all attacks and inverse attacks: starting points, gradients of the input, projected steps.

In fp16, gradients are computed with a loss scale for each sample.
"""

from collections.abc import Callable
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from uiat.balls import Ball, per_row
from uiat.errors import UserError
from uiat.precision import ATTACK_SCALE, is_fp16
from uiat.rng import Draws

Gradient = Callable[[Tensor], Tensor]
Start = Literal["uniform", "gaussian", "none"]
"""`uniform` in the ball, cut to [0, 1]; `gaussian`: x + 0.001·N(0, 1), which the code of TRADES, MART and HAT does not
clip; `none`: x."""

GAUSSIAN = 0.001
BACK_OFF = 2.0**6
"""Factor by which a scale is reduced when the gradient overflows."""
SMALLEST = 2.0**-14
"""A scale is not reduced below this: small gradients would become 0 in fp16."""


def starting_point(start: Start, ball: Ball, x: Tensor, draws: Draws, purpose: str) -> Tensor:
    """Return the starting point; a Gaussian one may lie slightly outside [0, 1]."""
    if start == "uniform":
        return ball.random(draws, purpose)
    if start == "gaussian":
        return x + GAUSSIAN * draws.normal(purpose, x)
    return x


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


class HalfGradient:
    """The gradient of Σ objective, computed in fp16 with scaled losses and returned unscaled.

    A row whose gradient is not finite is computed again with a smaller scale, which it keeps for the rest of the
    attack; other rows keep their scales. The check synchronises the host with the device once per gradient.
    """

    def __init__(self, objective: Callable[[Tensor], Tensor], rows: Tensor | None):
        self.objective, self.rows = objective, rows
        self.scale: Tensor | None = None

    def __call__(self, at: Tensor) -> Tensor:
        """Return the gradient in float32; a row that overflows at every scale is not finite."""
        scale = at.new_full((len(at),), ATTACK_SCALE) if self.scale is None else self.scale
        gradient = self._scaled(at, scale)
        while True:
            finite = gradient.flatten(1).isfinite().all(dim=1)
            again = ~finite & (scale > SMALLEST)
            if not bool(again.any()):
                break
            scale = torch.where(again, scale / BACK_OFF, scale)
            gradient = torch.where(per_row(finite, gradient), gradient, self._scaled(at, scale))
        self.scale = scale
        return gradient

    def _scaled(self, at: Tensor, scale: Tensor) -> Tensor:
        values = self.objective(at)
        if values.ndim == 0:  # one value for all: one scale for all
            scale = scale.min().expand_as(scale)
            factors = scale[0]
        else:
            factors = scale if self.rows is None else scale[self.rows]
        gradient = input_gradient((factors * values).sum(), at)
        return gradient / per_row(scale, gradient)


def input_gradient(value: Tensor, at: Tensor) -> Tensor:
    """Return the gradient of a value with respect to its input; no other gradient is accumulated."""
    gradient = torch.autograd.grad(value, at, allow_unused=True)[0] if value.requires_grad else None
    if gradient is None:
        raise UserError(
            "no gradient of the loss reaches the input, so no example can be crafted: the network detaches its input, "
            "runs under torch.no_grad, or begins with an operation that has no derivative (rounding, argmax, "
            "NumPy); make it differentiable."
        )
    return gradient
