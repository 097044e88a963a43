"""The baselines: natural and standard adversarial training, TRADES, MART and HAT."""

from dataclasses import dataclass

from torch import nn

from uiat.attacks import PGD
from uiat.crafting import Crafting
from uiat.errors import UserError
from uiat.fields import COUNT, SHARE, WEIGHT, optional_in_key, require
from uiat.methods.method import Method, MethodConfig
from uiat.objectives.terms import (
    AdversarialCrossEntropy,
    CleanCrossEntropy,
    HelperCrossEntropy,
    MARTBoostedCrossEntropy,
    Weighted,
    kl_to_target,
    mart_weighted_kl,
)
from uiat.targets import CleanTarget
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
        return self.compose(data, seed, [Weighted("ce", CleanCrossEntropy(self.label_smoothing))])


@dataclass(frozen=True)
class SAT(MethodConfig):
    """Standard adversarial training (PGD-AT; Madry et al., 2018; Eq. 1): CE(f(x̂), y).

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
        return self.compose(data, seed, [Weighted("ce", AdversarialCrossEntropy(self.label_smoothing))])


@dataclass(frozen=True)
class TRADES(MethodConfig):
    """TRADES (Zhang et al., 2019; Eq. 2): CE(f(x), y) + ω·KL(f(x) ‖ f(x̂)), with x̂ generated on the same KL.

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
        return self.compose(data, seed, trades_terms(self.omega, self.label_smoothing), CleanTarget())


def trades_terms(weight: float, label_smoothing: float) -> list[Weighted]:
    """Return CE(f(x), y) and the weighted KL(f(x) ‖ f(x̂))."""
    return [Weighted("ce_clean", CleanCrossEntropy(label_smoothing)), Weighted("kl", kl_to_target, weight)]


@dataclass(frozen=True)
class MART(MethodConfig):
    """MART (Wang et al., 2019): boosted CE(f(x̂), y) + β·KL(f(x) ‖ f(x̂))·(1 − f_y(x)).

    Misclassified samples weigh more.

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
        boosted = Weighted("bce", MARTBoostedCrossEntropy(self.label_smoothing))
        return self.compose(data, seed, [boosted, Weighted("kl", mart_weighted_kl, self.beta)], CleanTarget())


@dataclass(frozen=True)
class HAT(MethodConfig):
    """HAT (Rade and Moosavi-Dezfooli, 2022): TRADES' terms + γ·CE(f(x + h·(x̂ − x)), helper(x̂)).

    The helper is a naturally trained network.

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
        beyond = Weighted("helper", HelperCrossEntropy(helper, self.extrapolation), self.gamma)
        terms = [*trades_terms(self.beta, self.label_smoothing), beyond]
        return self.compose(data, seed, terms, CleanTarget(), helper=helper)
