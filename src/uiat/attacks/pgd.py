"""Projected gradient ascent (Madry et al., 2018), on cross-entropy, TRADES' KL or the CW margin."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.attacks.ascent import Start, ascend, gradient_of, starting_point
from uiat.balls import BALLS, Norm
from uiat.fields import RADIUS, STEP_COUNT, WEIGHT, require
from uiat.objectives.divergence import kl_divergence, margin
from uiat.precision import to_float32
from uiat.rng import Draws


@dataclass(frozen=True)
class PGD:
    """Multi-step attack: x̂ ← Π(x̂ + α·sign ∇ℓ(x̂)), `steps` times.

    >>> x_adv = PGD(eps=8 / 255, step=2 / 255, steps=20)(model, x, y)
    >>> bool((x_adv - x).abs().max() <= 8 / 255 + 1e-6)
    True
    """

    eps: float = 8 / 255
    """ε: radius of the ball."""
    step: float | None = 2 / 255
    """α: step size; `None` is ε/4."""
    steps: int = 10
    """Number of gradient steps."""
    start: Start = "uniform"
    """Random start: `uniform` in the ball, `gaussian` 0.001·N(0, 1), or `none`."""
    loss: Literal["ce", "kl", "margin"] = "ce"
    """Objective: cross-entropy, KL(f(x) ‖ f(x̂)), or the margin of the best wrong class (CW)."""
    norm: Norm = "linf"
    """The ball's norm."""

    def __post_init__(self) -> None:
        require(self, eps=RADIUS, step=WEIGHT, steps=STEP_COUNT)

    @property
    def radius(self) -> float:
        """Maximum distance of the result from x, in this attack's norm."""
        return self.eps

    @property
    def needs_classes(self) -> str:
        """Why labels must be classes, with the margin as objective; empty otherwise."""
        return "the margin that the attack raises is that of one class" if self.loss == "margin" else ""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws | None = None) -> Tensor:
        """Return adversarial examples for x; the model stays in its mode (normally `eval`)."""
        ball = BALLS[self.norm](x, self.eps)
        start = starting_point(self.start, ball, x, draws or Draws(), "attack")
        step = self.eps / 4 if self.step is None else self.step
        return ascend(gradient_of(self._objective(model, x, y)), start, ball, step=step, steps=self.steps)

    def _objective(self, model: nn.Module, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        # Summed later, not averaged: a step must not depend on the batch size, nor underflow in half precision.
        if self.loss == "ce":
            return lambda x_adv: F.cross_entropy(to_float32(model(x_adv)), y, reduction="none")
        if self.loss == "margin":
            return lambda x_adv: margin(to_float32(model(x_adv)), y)
        with torch.no_grad():
            log_p = to_float32(model(x)).log_softmax(dim=1)
        return lambda x_adv: kl_divergence(log_p, to_float32(model(x_adv)).log_softmax(dim=1))
