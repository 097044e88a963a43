"""HAT, helper-based adversarial training (Rade and Moosavi-Dezfooli, 2022)."""

from dataclasses import dataclass

from torch import nn

from uiat.attacks import PGD
from uiat.crafting import Crafting
from uiat.errors import UserError
from uiat.fields import COUNT, SHARE, WEIGHT, require
from uiat.methods.method import Method, MethodConfig
from uiat.methods.trades import trades_terms
from uiat.objectives.terms import HelperCrossEntropy, Weighted
from uiat.targets import CleanTarget
from uiat.types import DataSpec


@dataclass(frozen=True)
class HAT(MethodConfig):
    """HAT: TRADES' terms + γ·CE(f(x + h·(x̂ − x)), helper(x̂)), with a naturally trained helper network.

    >>> loss = HAT(beta=2.5).build(data, helper=helper)(model, batch, Clock(epoch=1, step=0, epochs=30)).total
    """

    beta: float = 2.5
    """Weight of KL(f(x) ‖ f(x̂))."""
    gamma: float = 0.5
    """Weight of the helper's term."""
    extrapolation: float = 2.0
    """h: extrapolation factor of the example that the helper labels."""
    helper: str = ""
    """The helper: a run folder or a weights file of the same network; empty: a helper is trained first, in the run."""
    helper_epochs: int | None = None
    """Epochs of a helper that is trained first; `None`: as many as the run has."""
    attack: PGD = PGD(loss="kl", start="gaussian")
    """The attack that generates x̂."""
    label_smoothing: float = 0.0
    """Label smoothing of the natural term."""
    crafting: Crafting = "eval"
    """BatchNorm while crafting."""
    needs_helper = True

    def __post_init__(self) -> None:
        require(self, beta=WEIGHT, gamma=WEIGHT, extrapolation=WEIGHT, helper_epochs=COUNT, label_smoothing=SHARE)

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data; `helper` is used in eval mode and not trained."""
        if helper is None:
            raise UserError("HAT needs a naturally trained helper: HAT().build(data, helper=network).")
        return Method(
            data,
            attack=self.attack,
            target=CleanTarget(),
            terms=[
                *trades_terms(self.beta, self.label_smoothing),
                Weighted("helper", HelperCrossEntropy(helper, self.extrapolation), self.gamma),
            ],
            crafting=self.crafting,
            seed=seed,
            helper=helper,
        )
