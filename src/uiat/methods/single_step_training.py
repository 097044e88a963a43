"""Single-step adversarial training (Table 5), with UIAT as an optional plug-in (Eq. S5)."""

from dataclasses import dataclass

from torch import nn

from uiat.attacks import FGSM, NFGSM, RSFGSM, Attack
from uiat.crafting import Crafting
from uiat.fields import WEIGHT, require
from uiat.methods.inverse_training import one_off_universal
from uiat.methods.method import Method, MethodConfig
from uiat.objectives.terms import GradientAlignment, Weighted, ce_adversarial, kl_to_target
from uiat.targets import OneOff, UniversalInverse
from uiat.types import DataSpec


@dataclass(frozen=True)
class UIATPlugIn:
    """+ UIAT: adds λ·KL(p ‖ f(x̂)) with a one-off universal inverse target, β = 0 for speed (B.3)."""

    enabled: bool = False
    """Whether to add UIAT's term."""
    lam: float = 3.5
    """λ of Eq. S5."""
    inverse: UniversalInverse = UniversalInverse(beta=0.0)
    """The inverse attack that updates z in epoch T'."""
    one_off: OneOff = OneOff()
    """The epoch T' in which inverse adversarial examples are generated, and p before it."""
    detach_target: bool = True
    """Whether no gradient flows through p in epoch T'."""

    def __post_init__(self) -> None:
        require(self, lam=WEIGHT)


class WithPlugIn(MethodConfig):
    """Base of single-step methods; the target, if any, comes from the plug-in."""

    attack: Attack
    uiat: UIATPlugIn

    @property
    def inverse(self) -> UniversalInverse | None:  # type: ignore[override]  # read-only, as all fields of its children
        """That of the plug-in, if enabled."""
        return self.uiat.inverse if self.uiat.enabled else None

    @property
    def one_off(self) -> OneOff | None:  # type: ignore[override]
        """That of the plug-in, if enabled."""
        return self.uiat.one_off if self.uiat.enabled else None

    def with_terms(self, more: list[Weighted], data: DataSpec, seed: int, keep_gradient: bool = False) -> Method:
        """Return CE(f(x̂), y) + the plug-in's term, if it is enabled, + more terms."""
        terms, target = [Weighted("ce", ce_adversarial)], None
        if self.uiat.enabled:
            terms.append(Weighted("kl", kl_to_target, self.uiat.lam))
            target = one_off_universal(self.uiat.inverse, self.uiat.one_off, data, seed, self.uiat.detach_target)
        return self.compose(data, seed, [*terms, *more], target, keep_gradient=keep_gradient)


@dataclass(frozen=True)
class SingleStep(WithPlugIn):
    """RS-FGSM, N-FGSM or plain FGSM training: CE(f(x̂), y) with a single-step x̂.

    >>> loss = SingleStep(attack=RSFGSM(eps=8 / 255)).build(data)(model, batch, Clock(epoch=1, step=0, epochs=30)).total
    """

    attack: RSFGSM | NFGSM | FGSM = NFGSM()
    """The single-step attack that generates x̂."""
    uiat: UIATPlugIn = UIATPlugIn()
    """The plug-in of B.3."""
    crafting: Crafting = "train"
    """BatchNorm while crafting: `train`, as in the authors' code."""

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data."""
        return self.with_terms([], data, seed)


@dataclass(frozen=True)
class GradAlign(WithPlugIn):
    """GradAlign: FGSM training + λ_align·(1 − cos) between input gradients at x and at a random point near it.

    >>> loss = GradAlign(lam_align=0.2).build(data)(model, batch, Clock(epoch=1, step=0, epochs=30)).total
    """

    lam_align: float = 0.2
    """Weight of the alignment term: 0.112, 0.2 and 0.356 at ε = 6, 8 and 10/255 in its authors' code."""
    attack: FGSM = FGSM(alpha=1.25)
    """The attack that generates x̂; the alignment uses the same ε."""
    uiat: UIATPlugIn = UIATPlugIn()
    """The plug-in of B.3."""
    crafting: Crafting = "train"
    """BatchNorm while crafting: `train`, as in the authors' code."""

    def __post_init__(self) -> None:
        require(self, lam_align=WEIGHT)

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data."""
        alignment = Weighted("align", GradientAlignment(self.attack.eps), self.lam_align)
        # Crafted with running statistics, the gradient could not be compared with one from batch statistics.
        reuse = self.crafting != "eval"
        return self.with_terms([alignment], data, seed, keep_gradient=reuse)
