"""The paper's methods: IAT, UIAT and one-off UIAT (Eq. 7, 8 and S1; Alg. 1 and S1).

All three are CE(f(x̂), y) + λ·KL(p ‖ f(x̂)) and differ only in the target p. The rows of Table 6 are options: universal
or not (UAG) is IAT against UIAT, β = 0 or 1 (FR), momentum or not (IAM).
"""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from uiat.attacks import PGD
from uiat.crafting import Crafting
from uiat.errors import UserError
from uiat.fields import SHARE, WEIGHT, optional_in_key, require
from uiat.methods.method import Method, MethodConfig
from uiat.objectives.terms import AdversarialCrossEntropy, Weighted, kl_to_target
from uiat.targets import (
    InstanceInverse,
    InstanceInverseTarget,
    Momentum,
    MomentumTarget,
    OneOff,
    OneOffTarget,
    Target,
    UniversalInverse,
    UniversalInverseTarget,
)
from uiat.types import DataSpec

Statistics = Literal["batch", "running"]


@dataclass(frozen=True)
class InverseTraining(MethodConfig):
    """What the inverse methods share."""

    lam: float = 3.5
    """λ of Eq. 7 and S1: weight of KL(p ‖ f(x̂)), where p is the prediction on the inverse adversarial example."""
    attack: PGD = PGD()
    """The attack that generates x̂."""
    inverse: InstanceInverse | UniversalInverse = UniversalInverse()
    """The inverse attack; each method has its own kind."""
    detach_target: bool = True
    """Whether no gradient flows through p."""
    crafting: Crafting = "eval"
    """BatchNorm while crafting x̂ and inverse adversarial examples."""
    label_smoothing: float = optional_in_key(0.0)
    """Label smoothing of CE(f(x̂), y)."""
    target_statistics: Statistics = optional_in_key("batch")
    """BatchNorm in the forward that gives p: the `batch`'s statistics, or the `running` ones (no gradient then)."""

    def __post_init__(self) -> None:
        require(self, lam=WEIGHT, label_smoothing=SHARE)

    @property
    def running(self) -> bool:
        """Whether p is predicted with running statistics."""
        running = self.target_statistics == "running"
        if running and not self.detach_target:
            raise UserError(
                "a p from running statistics has no gradient: set target_statistics to batch, or detach_target to true."
            )
        return running

    def with_target(self, target: Target, data: DataSpec, seed: int) -> Method:
        """Return CE(f(x̂), y) + λ·KL(p ‖ f(x̂)) with p from the target."""
        ce = Weighted("ce", AdversarialCrossEntropy(self.label_smoothing))
        return self.compose(data, seed, [ce, Weighted("kl", kl_to_target, self.lam)], target)


@dataclass(frozen=True)
class IAT(InverseTraining):
    """Instance-wise inverse adversarial training (Alg. S1): CE(f(x̂), y) + λ·KL(f(x̌) ‖ f(x̂)).

    >>> loss = IAT(inverse=InstanceInverse(steps=5)).build(data)(model, batch, Clock(epoch=1, step=0, epochs=30)).total
    """

    inverse: InstanceInverse = InstanceInverse()
    """The inverse attack that generates x̌ (Eq. 3)."""
    momentum: Momentum = Momentum(enabled=False)
    """Averaging of p over epochs (Eq. 8)."""

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data."""
        inner = InstanceInverseTarget(self.inverse, self.detach_target, self.running)
        return self.with_target(with_momentum(inner, self.momentum, data), data, seed)


@dataclass(frozen=True)
class UIAT(InverseTraining):
    """Universal inverse adversarial training (Alg. 1): CE(f(x̂), y) + λ·KL(p ‖ f(x̂)), a z for each class.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> method = UIAT(lam=3.5).build(DataSpec(num_classes=10, num_samples=100, shape=(1, 8, 8)))
    >>> batch = Batch(torch.rand(4, 1, 8, 8), y=torch.tensor([3, 1, 4, 1]), index=torch.tensor([0, 1, 2, 3]))
    >>> loss = method(model, batch, Clock(epoch=1, step=0, epochs=30))
    >>> sorted(loss.parts)
    ['ce', 'kl']
    >>> loss.total.backward()
    """

    inverse: UniversalInverse = UniversalInverse()
    """The inverse attack that updates z, where x̌ = clip(x + z_y) (Eq. 6)."""
    momentum: Momentum = Momentum()
    """Averaging of p over epochs (Eq. 8)."""

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data."""
        inner = UniversalInverseTarget(self.inverse, data, seed=seed, detach=self.detach_target, running=self.running)
        return self.with_target(with_momentum(inner, self.momentum, data), data, seed)


@dataclass(frozen=True)
class UIATOneOff(InverseTraining):
    """One-off UIAT (Eq. S1 and S2): inverse adversarial examples in a single epoch T', whose predictions are kept.

    >>> loss = UIATOneOff(one_off=OneOff(epoch=0.8)).build(data)(model, batch, Clock(epoch=1, step=0, epochs=30)).total
    """

    inverse: UniversalInverse = UniversalInverse()
    """The inverse attack that updates z in epoch T'."""
    one_off: OneOff = OneOff()
    """The epoch T' in which inverse adversarial examples are generated, and p before it."""

    @property
    def selectable_from(self) -> float:  # type: ignore[override]  # read-only, as all fields
        """T': before it, the method has not trained on any inverse adversarial example."""
        return self.one_off.epoch

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        """Return the method for this data."""
        target = one_off_universal(self.inverse, self.one_off, data, seed, self.detach_target, self.running)
        return self.with_target(target, data, seed)


def with_momentum(inner: Target, momentum: Momentum, data: DataSpec) -> Target:
    """Average the predictions of a target over epochs if momentum is enabled."""
    return MomentumTarget(inner, momentum, data) if momentum.enabled else inner


def one_off_universal(
    inverse: UniversalInverse, one_off: OneOff, data: DataSpec, seed: int, detach: bool = True, running: bool = False
) -> Target:
    """Return the universal inverse target, active in one epoch only."""
    inner = UniversalInverseTarget(inverse, data, seed=seed, detach=detach, running=running)
    return OneOffTarget(inner, one_off, data, running=running)
