"""TRADES (Zhang et al., 2019), Eq. 2."""

from dataclasses import dataclass

from torch import nn

from uiat.attacks import PGD
from uiat.crafting import Crafting
from uiat.fields import SHARE, WEIGHT, require
from uiat.methods.method import Method, MethodConfig
from uiat.objectives.terms import CleanCrossEntropy, Weighted, kl_to_target
from uiat.targets import CleanTarget
from uiat.types import DataSpec


@dataclass(frozen=True)
class TRADES(MethodConfig):
    """TRADES: CE(f(x), y) + ω·KL(f(x) ‖ f(x̂)), with x̂ generated on the same KL.

    >>> loss = TRADES(omega=6).build(data)(model, batch, Clock(epoch=1, step=0, epochs=30)).total
    """

    omega: float = 6.0
    """ω of Eq. 2: weight of the robust term."""
    attack: PGD = PGD(loss="kl", start="gaussian")
    """The inner maximisation of Eq. 2."""
    label_smoothing: float = 0.0
    """Label smoothing of the natural term."""
    crafting: Crafting = "eval"
    """BatchNorm while crafting."""

    def __post_init__(self) -> None:
        require(self, omega=WEIGHT, label_smoothing=SHARE)

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data."""
        return Method(
            data,
            attack=self.attack,
            target=CleanTarget(),
            terms=trades_terms(self.omega, self.label_smoothing),
            crafting=self.crafting,
            seed=seed,
        )


def trades_terms(weight: float, label_smoothing: float) -> list[Weighted]:
    """Return CE(f(x), y) and the weighted KL(f(x) ‖ f(x̂))."""
    return [Weighted("ce_clean", CleanCrossEntropy(label_smoothing)), Weighted("kl", kl_to_target, weight)]
