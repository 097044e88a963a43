"""Attack gradients in fp16 with a loss scale per sample."""

from collections.abc import Callable

import torch
from torch import Tensor

from uiat.balls import per_row
from uiat.errors import UserError
from uiat.precision import ATTACK_SCALE

BACK_OFF = 2.0**6
"""Factor by which a scale is reduced when the gradient overflows."""
SMALLEST = 2.0**-14
"""A scale is not reduced below this: small gradients would become 0 in fp16."""


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
