"""Natural training: no adversarial examples."""

from dataclasses import dataclass

from torch import nn

from uiat.fields import SHARE, require
from uiat.methods.method import Method, MethodConfig
from uiat.objectives.terms import CleanCrossEntropy, Weighted
from uiat.types import DataSpec


@dataclass(frozen=True)
class Natural(MethodConfig):
    """Natural training: CE(f(x), y).

    >>> loss = Natural().build(data)(model, batch, Clock(epoch=1, step=0, epochs=30)).total
    """

    label_smoothing: float = 0.0
    """Label smoothing."""

    def __post_init__(self) -> None:
        require(self, label_smoothing=SHARE)

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data."""
        return Method(
            data,
            attack=None,
            terms=[Weighted("ce", CleanCrossEntropy(self.label_smoothing))],
            seed=seed,
        )
