"""Attacks generate adversarial examples x̂: `attack(model, x, y, draws) -> x_adv`, for x in [0, 1]."""

from typing import Protocol

from torch import Tensor, nn

from uiat.attacks.pgd import PGD
from uiat.attacks.single_step import FGSM, NFGSM, RSFGSM
from uiat.balls import Norm
from uiat.rng import Draws


class Attack(Protocol):
    """Protocol of attacks: callables that return adversarial examples, with their settings as fields."""

    @property
    def eps(self) -> float:
        """ε: the perturbation budget."""

    @property
    def radius(self) -> float:
        """Maximum distance of the result from x (more than ε for N-FGSM)."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws | None = None) -> Tensor:
        """Return an adversarial example for each sample of x; the model stays in its mode."""


def norm_of(attack: Attack | None) -> Norm:
    """Return the norm of an attack's ball: its `norm` if it has one, else L∞."""
    norm: Norm = getattr(attack, "norm", "linf")
    return norm


ATTACKS: dict[str, Attack] = {
    "pgd": PGD(),
    "fgsm": FGSM(),
    "rs-fgsm": RSFGSM(),
    "n-fgsm": NFGSM(),
}

BUNDLED = tuple(ATTACKS)
"""The attacks of this package; all others are registered by custom code."""

DESCRIPTIONS: dict[str, str] = {
    "pgd": "ascent on cross-entropy, KL or CW's margin, in an L∞ or L2 ball",
    "fgsm": "one sign step from the sample itself",
    "rs-fgsm": "one sign step of 1.25 ε from a random start, projected to ε",
    "n-fgsm": "uniform noise of 2 ε, then one sign step of ε, not projected",
}

__all__ = ["ATTACKS", "BUNDLED", "DESCRIPTIONS", "FGSM", "NFGSM", "PGD", "RSFGSM", "Attack", "norm_of"]
