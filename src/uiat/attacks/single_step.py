"""Single-step attacks: one gradient, three ways to start and to bound it (Eq. S4)."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from uiat.attacks.ascent import Gradient, ascend, gradient_of
from uiat.balls import Linf
from uiat.fields import RADIUS, WEIGHT, require
from uiat.precision import to_float32
from uiat.rng import Draws


@dataclass(frozen=True)
class FGSM:
    """Fast gradient sign method (Goodfellow et al., 2015): one step from x itself.

    >>> x_adv = FGSM(eps=8 / 255)(model, x, y)
    """

    eps: float = 8 / 255
    """ε: radius of the ball."""
    alpha: float = 1.0
    """Step size, as a multiple of ε; the result is projected to ε."""

    def __post_init__(self) -> None:
        require(self, eps=RADIUS, alpha=WEIGHT)

    @property
    def radius(self) -> float:
        """Maximum distance of the result from x."""
        return self.eps

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws | None = None) -> Tensor:
        """Return adversarial examples for x."""
        return self.with_gradient(model, x, y)[0]

    def with_gradient(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return adversarial examples for x, and the gradient of the summed cross-entropy at x."""
        gradient = _gradient(model, y)(x)
        step = self.alpha * self.eps
        return ascend(lambda at: gradient, x, Linf(x, self.radius), step=step, steps=1), gradient


class NoisyFGSM:
    """One step from uniform noise: what RS-FGSM and N-FGSM share."""

    eps: float
    alpha: float
    noise: float = 1.0

    def __post_init__(self) -> None:
        require(self, eps=RADIUS, alpha=WEIGHT)

    @property
    def radius(self) -> float:
        """Maximum distance of the result from x."""
        return self.eps

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws | None = None) -> Tensor:
        """Return adversarial examples for x."""
        start = Linf(x, self.noise * self.eps).random(draws or Draws(), "attack")
        return ascend(_gradient(model, y), start, Linf(x, self.radius), step=self.alpha * self.eps, steps=1)


@dataclass(frozen=True)
class RSFGSM(NoisyFGSM):
    """FGSM from a random start (Wong et al., 2020): U(−ε, ε), a step of 1.25 ε, projected to ε.

    >>> x_adv = RSFGSM(eps=8 / 255)(model, x, y)
    """

    eps: float = 8 / 255
    """ε: radius of the ball, and of the random start."""
    alpha: float = 1.25
    """Step size, as a multiple of ε."""


@dataclass(frozen=True)
class NFGSM(NoisyFGSM):
    """Noise FGSM (de Jorge et al., 2022): strong noise, a step of ε, and no projection to ε.

    >>> x_adv = NFGSM(eps=8 / 255)(model, x, y)
    """

    eps: float = 8 / 255
    """ε: the perturbation budget; the result may lie up to (noise + alpha)·ε from x."""
    noise: float = 2.0
    """Half-width of the uniform noise, as a multiple of ε."""
    alpha: float = 1.0
    """Step size, as a multiple of ε."""

    def __post_init__(self) -> None:
        require(self, eps=RADIUS, noise=WEIGHT, alpha=WEIGHT)

    @property
    def radius(self) -> float:
        """Maximum distance of the result from x: 3 ε by default, by design."""
        return (self.noise + self.alpha) * self.eps


def _gradient(model: nn.Module, y: Tensor) -> Gradient:
    return gradient_of(lambda x_adv: F.cross_entropy(to_float32(model(x_adv)), y, reduction="none"))
