"""Norm balls around a centre, intersected with the pixel range.

A ball has three operations: `move` along a gradient, `project`, and a `random` point. All attacks use these.
"""

from math import inf
from typing import Literal, Protocol

import torch
from torch import Tensor

from uiat.errors import UserError
from uiat.rng import Draws

Norm = Literal["linf", "l2"]

PIXELS = (0.0, 1.0)
"""The range of inputs: models take [0, 1] and normalise inside."""


class Ball(Protocol):
    """The set of allowed perturbed samples."""

    def project(self, at: Tensor) -> Tensor:
        """Return the projection of `at` onto the set."""

    def move(self, at: Tensor, gradient: Tensor, step: float) -> Tensor:
        """Take a step of size `step` in the norm's steepest ascent direction (descent if negative), then project."""

    def random(self, draws: Draws, purpose: str) -> Tensor:
        """Return a uniform random point of the ball, clipped to the pixel range."""


class Linf:
    """{a : |a − centre| ≤ ε in every entry}, intersected with `box`."""

    def __init__(self, center: Tensor, eps: float, box: tuple[float, float] | None = PIXELS):
        self.center, self.eps = center.detach(), _radius(eps)
        self.lower, self.upper = self.center - eps, self.center + eps
        if box is not None:
            self.lower, self.upper = self.lower.clamp_(min=box[0]), self.upper.clamp_(max=box[1])

    def project(self, at: Tensor) -> Tensor:
        """Clip every entry; the ball and the pixel range together are one box."""
        return torch.clamp(at, self.lower, self.upper)

    def move(self, at: Tensor, gradient: Tensor, step: float) -> Tensor:
        """Sign step (Eq. 3), then project."""
        moved = gradient.sign()  # the only new tensor: the step, the sum and the clip are in place
        return torch.clamp(torch.add(at, moved, alpha=step, out=moved), self.lower, self.upper, out=moved)

    def random(self, draws: Draws, purpose: str) -> Tensor:
        """Return centre + U(−ε, ε), clipped to the pixel range."""
        return self.project(self.center + self.eps * draws.uniform(purpose, self.center))


class L2:
    """{a : ‖a − centre‖₂ ≤ ε, for each sample}, intersected with `box`."""

    def __init__(self, center: Tensor, eps: float, box: tuple[float, float] | None = PIXELS):
        self.center, self.eps, self.box = center.detach(), _radius(eps), box

    def project(self, at: Tensor) -> Tensor:
        """Rescale a perturbation that is too large, then clip (which cannot enlarge it, as the centre is inside)."""
        delta = at - self.center
        inside = self.center + delta * (self.eps / _norm(delta).clamp(min=1e-12)).clamp(max=1)
        return inside if self.box is None else inside.clamp(*self.box)

    def move(self, at: Tensor, gradient: Tensor, step: float) -> Tensor:
        """Step of size `step` in the direction of the gradient, or none if it is zero; then project."""
        return self.project(at + step * gradient / _norm(gradient).clamp(min=1e-12))

    def random(self, draws: Draws, purpose: str) -> Tensor:
        """Return a point uniform in the ball: a uniform direction, radius ε·u^(1/d)."""
        direction = draws.normal(purpose, self.center)
        unit = (draws.uniform("radius", self.center.flatten(1)[:, :1]) + 1) / 2
        radius = self.eps * unit ** (1 / self.center[0].numel())
        return self.project(self.center + direction / _norm(direction).clamp(min=1e-12) * per_row(radius, direction))


BALLS: dict[str, type[Linf] | type[L2]] = {"linf": Linf, "l2": L2}


def _radius(eps: float) -> float:
    if not 0 <= eps < inf:
        raise UserError(f"ε is {eps}, but a radius is a finite number, at least 0.")
    return eps


def _norm(a: Tensor) -> Tensor:
    return per_row(a.flatten(1).norm(dim=1), a)


def per_row(per_sample: Tensor, a: Tensor) -> Tensor:
    """Reshape one value per sample so that it broadcasts over the entries of `a`."""
    return per_sample.reshape(-1, *[1] * (a.ndim - 1))
