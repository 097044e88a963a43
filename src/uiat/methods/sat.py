"""Standard adversarial training (Madry et al., 2018), Eq. 1."""

from dataclasses import dataclass

from torch import nn

from uiat.added import added
from uiat.attacks import PGD
from uiat.crafting import Crafting
from uiat.methods.method import Method
from uiat.objectives.terms import AdversarialCrossEntropy, Weighted
from uiat.types import DataSpec


@dataclass(frozen=True)
class SAT:
    """Standard adversarial training (PGD-AT): CE(f(x̂), y)."""

    attack: PGD = PGD()
    """The inner maximisation of Eq. 1."""
    crafting: Crafting = "eval"
    """BatchNorm while crafting."""
    label_smoothing: float = added(0.0)
    """Mass spread over all classes in the cross-entropy."""

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
