"""Standard adversarial training (Madry et al., 2018), Eq. 1."""

from dataclasses import dataclass

from torch import nn

from uiat.attacks import PGD
from uiat.crafting import Crafting
from uiat.fields import SHARE, optional_in_key, require
from uiat.methods.method import Method, MethodConfig
from uiat.objectives.terms import AdversarialCrossEntropy, Weighted
from uiat.types import DataSpec


@dataclass(frozen=True)
class SAT(MethodConfig):
    """Standard adversarial training (PGD-AT): CE(f(x̂), y).

    >>> loss = SAT(attack=PGD(eps=8 / 255, steps=10)).build(data)(model, batch, Clock(epoch=1, step=0, epochs=30)).total
    """

    attack: PGD = PGD()
    """The inner maximisation of Eq. 1."""
    crafting: Crafting = "eval"
    """BatchNorm while crafting."""
    label_smoothing: float = optional_in_key(0.0)
    """Label smoothing of the cross-entropy."""

    def __post_init__(self) -> None:
        require(self, label_smoothing=SHARE)

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data."""
        terms = [Weighted("ce", AdversarialCrossEntropy(self.label_smoothing))]
        return Method(
            data,
            attack=self.attack,
            terms=terms,
            crafting=self.crafting,
            seed=seed,
        )
