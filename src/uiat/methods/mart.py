"""MART (Wang et al., 2019)."""

from dataclasses import dataclass

from torch import nn

from uiat.attacks import PGD
from uiat.crafting import Crafting
from uiat.fields import SHARE, WEIGHT, optional_in_key, require
from uiat.methods.method import Method, MethodConfig
from uiat.objectives.terms import MARTBoostedCrossEntropy, Weighted, mart_weighted_kl
from uiat.targets import CleanTarget
from uiat.types import DataSpec


@dataclass(frozen=True)
class MART(MethodConfig):
    """MART: boosted CE(f(x̂), y) + β·KL(f(x) ‖ f(x̂))·(1 − f_y(x)), misclassified samples weigh more.

    >>> loss = MART(beta=5).build(data)(model, batch, Clock(epoch=1, step=0, epochs=30)).total
    """

    beta: float = 5.0
    """Weight of the KL term."""
    attack: PGD = PGD(start="gaussian")
    """The attack that generates x̂."""
    crafting: Crafting = "eval"
    """BatchNorm while crafting."""
    label_smoothing: float = optional_in_key(0.0)
    """Label smoothing of the boosted cross-entropy."""

    def __post_init__(self) -> None:
        require(self, beta=WEIGHT, label_smoothing=SHARE)

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data."""
        boosted = MARTBoostedCrossEntropy(self.label_smoothing)
        return Method(
            data,
            attack=self.attack,
            target=CleanTarget(),
            terms=[Weighted("bce", boosted), Weighted("kl", mart_weighted_kl, self.beta)],
            crafting=self.crafting,
            seed=seed,
        )
