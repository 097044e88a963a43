"""Gradients of an attack in fp16, whose range is small: each sample's loss has a scale of its own."""

from collections.abc import Callable

import torch
from torch import Tensor

from uiat.balls import per_row
from uiat.precision import ATTACK_SCALE

BACK_OFF = 2.0**6
"""What a scale is divided by where the gradient overflowed."""
SMALLEST = 2.0**-14
"""A scale below it would push the loss's own gradients out of range at the other end."""


class HalfGradient:
    """The gradient of Σ objective, computed in fp16 with scaled losses and returned unscaled.

    A row whose gradient is not finite is computed anew with a smaller scale, which it keeps while the attack lasts; the
    others keep theirs, so that one large gradient costs the small ones nothing. To see that, the host waits for the
    device once a gradient.
    """

    def __init__(self, objective: Callable[[Tensor], Tensor], rows: Tensor | None):
        self.objective, self.rows = objective, rows
        self.scale: Tensor | None = None

    def __call__(self, at: Tensor) -> Tensor:
        """Return the gradient in float32; a row that has none at any scale is not finite."""
        scale = at.new_full((len(at),), ATTACK_SCALE) if self.scale is None else self.scale
        found = self._scaled(at, scale)
        while True:
            finite = found.flatten(1).isfinite().all(dim=1)
            again = ~finite & (scale > SMALLEST)
            if not bool(again.any()):
                break
            scale = torch.where(again, scale / BACK_OFF, scale)
            found = torch.where(per_row(finite, found), found, self._scaled(at, scale))
        self.scale = scale
        return found

    def _scaled(self, at: Tensor, scale: Tensor) -> Tensor:
        values = self.objective(at)
        if values.ndim == 0:  # one value for all: one scale for all
            scale = scale.min().expand_as(scale)
            factors = scale[0]
        else:
            factors = scale if self.rows is None else scale[self.rows]
        (found,) = torch.autograd.grad((factors * values).sum(), at)
        return found / per_row(scale, found)
