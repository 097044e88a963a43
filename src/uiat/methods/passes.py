"""The passes through the network that one step of a method needs, stated from its hyper-parameters."""

from dataclasses import dataclass, fields

from uiat.attacks import PGD, Attack
from uiat.crafting import Crafting
from uiat.targets import InstanceInverse, OneOff, UniversalInverse
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
        through_model = self.craft_forward - self.others
        return {
            "forward": through_model + gradients + self.predict + self.update + self.double,
            "input_backward": gradients,
            "weight_backward": self.update + 2 * self.double,
        }


UPDATE = Need(update=1)
"""The forward and backward that every loss takes at least once."""


def attack_passes(attack: Attack | None, crafting: Crafting) -> Need:
    """Return the passes of one of our attacks; KL adds a forward on x, which the attack climbs away from."""
    if attack is None:
        return Need()
    if isinstance(attack, PGD):
        return _crafting_passes(attack.steps, 1 if attack.loss == "kl" else 0, crafting)
    return _crafting_passes(1, 0, crafting)


def inverse_passes(
    inverse: InstanceInverse | UniversalInverse, crafting: Crafting, detach: bool, running: bool = False
) -> Need:
    """Return the passes of x̌ (or z) and then p, with the features of x and x̂ where β asks for them."""
    steps = inverse.steps if isinstance(inverse, InstanceInverse) else 1
    p = Need(craft_forward=1) if running else Need(predict=1) if detach else UPDATE
    return _crafting_passes(steps, 2 if inverse.beta else 0, crafting) + p


def one_off_passes(
    inverse: UniversalInverse, one_off: OneOff, clock: Clock, crafting: Crafting, detach: bool, running: bool = False
) -> Need:
    """Return the passes of a one-off target: f(x) before epoch T', the inverse in it, and none after it."""
    moment = clock.epoch_at(one_off.epoch)
    if clock.epoch > moment:  # every sample has its p
        return Need()
    if clock.epoch == moment:
        return inverse_passes(inverse, crafting, detach, running)
    if running:
        return Need(craft_forward=1)
    return Need(predict=1) if one_off.detach_clean else UPDATE


def _crafting_passes(gradients: int, forwards: int, crafting: Crafting) -> Need:
    if crafting != "eval":
        return Need(train_gradient=gradients, predict=forwards)
    return Need(craft_gradient=gradients, craft_forward=forwards)
