"""The passes that a method's maths needs in one step, stated from its hyper-parameters."""

from dataclasses import dataclass, fields
from typing import Any

from uiat.attacks import PGD
from uiat.crafting import Crafting
from uiat.methods import HAT, IAT, MART, SAT, TRADES, UIAT, GradAlign, MethodConfig, Natural, SingleStep, UIATOneOff
from uiat.targets import InstanceInverse, UniversalInverse
from uiat.types import Clock


@dataclass(frozen=True)
class Need:
    """How many passes of each kind, in batches."""

    craft_forward: float = 0
    """A forward with running statistics, no gradient: the attack's f(x), the features of Eq. 4, HAT's helper."""
    craft_gradient: float = 0
    """A forward with running statistics and its backward to the input: a step of an attack."""
    train_gradient: float = 0
    """The same with batch statistics, as single-step methods craft."""
    predict: float = 0
    """A forward with batch statistics, no gradient: p, detached."""
    update: float = 0
    """A forward with batch statistics and its backward to the weights."""
    double: float = 0
    """A forward, a backward to the input, and the backward of both to the weights (GradAlign)."""
    others: float = 0
    """Of the `craft_forward`s, those through another network (HAT's helper)."""

    def __add__(self, other: "Need") -> "Need":
        return Need(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float) -> "Need":
        return Need(*(getattr(self, f.name) * times for f in fields(self)))

    @property
    def counts(self) -> dict[str, float]:
        """What a `PassCounter` on the network finds."""
        gradients = self.craft_gradient + self.train_gradient
        own = self.craft_forward - self.others
        return {
            "forward": own + gradients + self.predict + self.update + self.double,
            "input_backward": gradients,
            "weight_backward": self.update + 2 * self.double,
        }


def need(method: MethodConfig, clock: Clock) -> Need | None:
    """Return what one step of a method needs at this time of a run; `None` for a method that does not state it."""
    crafting: Crafting = getattr(method, "crafting", "eval")
    once = Need(update=1)
    attack = _attack(getattr(method, "attack", None), crafting)
    match method:
        case Natural():
            return once
        case SAT():
            return attack + once
        case TRADES() | MART():
            return attack + once * 2
        case HAT():
            return attack + once * 3 + Need(craft_forward=1, others=1)
        case IAT() | UIAT():
            return attack + once + _inverse(method.inverse, crafting, method.detach_target, _is_running(method))
        case UIATOneOff():
            return attack + once + _one_off(method, clock, crafting, method.detach_target, _is_running(method))
        case SingleStep() | GradAlign():
            # GradAlign's gradient at x is the attack's own, unless that has other statistics.
            again = 1 if crafting == "eval" else 0
            align = Need(train_gradient=again, double=1) if isinstance(method, GradAlign) else Need()
            plug_in = _one_off(method.uiat, clock, crafting, True) if method.uiat.enabled else Need()
            return attack + once + align + plug_in
    return None


def _attack(attack: Any, crafting: Crafting) -> Need:
    if attack is None:
        return Need()
    steps = attack.steps if isinstance(attack, PGD) else 1
    once = isinstance(attack, PGD) and attack.loss == "kl"  # f(x), which the attack climbs away from
    return _crafted(steps, 1 if once else 0, crafting)


def _is_running(method: IAT | UIAT | UIATOneOff) -> bool:
    return method.target_statistics == "running"


def _inverse(
    inverse: InstanceInverse | UniversalInverse, crafting: Crafting, detach: bool, running: bool = False
) -> Need:
    """x̌ (or z) and then p; the features of x and x̂ where β asks for them."""
    steps = inverse.steps if isinstance(inverse, InstanceInverse) else 1
    p = Need(craft_forward=1) if running else Need(predict=1) if detach else Need(update=1)
    return _crafted(steps, 2 if inverse.beta else 0, crafting) + p


def _one_off(holder: Any, clock: Clock, crafting: Crafting, detach: bool, running: bool = False) -> Need:
    moment = clock.epoch_at(holder.one_off.epoch)
    if clock.epoch > moment:  # every sample has its p
        return Need()
    if clock.epoch == moment:
        return _inverse(holder.inverse, crafting, detach, running)
    if running:
        return Need(craft_forward=1)
    return Need(predict=1) if holder.one_off.detach_clean else Need(update=1)


def _crafted(gradients: int, forwards: int, crafting: Crafting) -> Need:
    if crafting != "eval":
        return Need(train_gradient=gradients, predict=forwards)
    return Need(craft_gradient=gradients, craft_forward=forwards)
