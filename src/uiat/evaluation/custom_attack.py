"""Custom attacks in an evaluation: registered ones, attack objects and functions; their examples are checked."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from uiat.attacks import Attack, norm_of
from uiat.balls import PIXELS, Norm
from uiat.crafting import crafting
from uiat.errors import UserError, first_line
from uiat.fields import show_number
from uiat.recipes.variants import at_radius
from uiat.rng import SampleDraws, derive

SLACK, ROUNDING = 1e-4, 1e-6
"""Tolerances of the distance, relative to ε and absolute; the latter also of pixels. Attacks round in several ways."""

AttackFunction = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""Returns adversarial examples for (model, x, y)."""
AnyAttack = str | Attack | AttackFunction
"""The name of an attack, an attack object or a function."""


@dataclass(frozen=True)
class CustomAttack:
    """A custom attack as a component of a cascade. Its examples must lie in the ball of the threat model."""

    attack: Attack | AttackFunction
    name: str
    eps: float
    norm: Norm
    seed: int

    @property
    def cost(self) -> float:
        """One forward and backward a step, if the attack has `steps`, and a forward to classify the result."""
        steps = getattr(self.attack, "steps", 1)
        return (steps if isinstance(steps, int) else 1) + 0.5

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, index: tuple[int, ...]) -> Tensor:
        """Attack every x; torch's random numbers depend on the seed and the batch.

        The state of torch, the network's modes and its buffers are restored: much attack code ends in `model.train()`.
        """
        devices = [x.device] if x.device.type == "cuda" else []
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        try:
            with torch.enable_grad(), torch.random.fork_rng(devices), crafting(model):
                torch.manual_seed(derive(self.seed, "custom attack", step=index[0]))
                more = {"draws": SampleDraws(self.seed, index=index)} if _takes_draws(self.attack) else {}
                found: Any = self.attack(model, x.clone(), y.clone(), **more)
            x_adv = torch.as_tensor(found).detach().to(x)
        except UserError:
            raise
        except Exception as error:  # custom code may raise anything; the cause is kept for a debugger
            raise UserError(f"the attack {self.name!r} failed ({first_line(error)}).") from error
        finally:
            for buffer, value in buffers:
                buffer.copy_(value)
        if x_adv.shape != x.shape:
            raise UserError(
                f"the attack {self.name!r} returned shape {tuple(x_adv.shape)} for images {tuple(x.shape)}: return one "
                "adversarial example for each."
            )
        return x_adv

    def distance(self, x: Tensor, x_adv: Tensor) -> float:
        """Return the largest distance of an x̂ from x; raise a `UserError` if x̂ is not in the ball or not an image."""
        low, high = float(x_adv.min()), float(x_adv.max())
        if not (low >= PIXELS[0] - ROUNDING and high <= PIXELS[1] + ROUNDING):
            raise UserError(
                f"the attack {self.name!r} returned pixels from {low:.4g} to {high:.4g}: clip them to [0, 1]."
            )
        delta = (x_adv - x).flatten(1)
        distance = float(delta.norm(dim=1, p=2 if self.norm == "l2" else inf).max())
        if not distance <= self.eps * (1 + SLACK) + ROUNDING:
            raise UserError(
                f"the attack {self.name!r} returned an example at distance {distance:.6g} from its image, outside of "
                f"the {self.norm} ball with ε = {show_number(self.eps)}: give the ε that it was made for."
            )
        return distance


def _takes_draws(attack: Any) -> bool:
    """Whether an attack is called as those of this package, with random draws for each sample."""
    try:
        return "draws" in inspect.signature(attack).parameters
    except (TypeError, ValueError):
        return False


def check_attack(attack: Any) -> None:
    """Raise a `UserError` if an object that was given or registered as an attack cannot be called as one."""
    if isinstance(attack, type) or not callable(attack):
        raise UserError(
            f"{attack!r} is no attack: give a name, such as 'pgd-20', an object, such as PGD(), or a function of "
            "(model, x, y)."
        )


def in_threat_model(name: str, attack: Attack, eps: float, norm: Norm) -> Attack:
    """Return a registered attack at another ε, with its step sizes scaled along; one without an ε is unchanged."""
    check_attack(attack)
    if getattr(attack, "eps", None) is None:
        return attack
    if norm_of(attack) != norm:
        raise UserError(f"the attack {name!r} is of the norm {norm_of(attack)}: give this norm, not {norm}.")
    if attack.eps == eps:
        return attack
    if not is_dataclass(attack) or isinstance(attack, type) or not attack.eps:
        raise UserError(f"the attack {name!r} has ε = {show_number(attack.eps)}: give this ε, not {show_number(eps)}.")
    scaled: Attack = replace(at_radius(attack, eps, attack.eps), eps=eps)  # without the rounding of the scaling
    return scaled


def definition(attack: Any) -> str:
    """Return what defines an attack, for a card: its fields, or the name of a function or a class."""
    if is_dataclass(attack):
        return repr(attack)
    named = getattr(attack, "func", attack)  # of functools.partial
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}.{named.__qualname__}"


def attack_names(attacks: Sequence[Any]) -> list[str]:
    """Return a readable name for each attack, different for each: `PGD(steps=50)`, or that of a function."""
    names: list[str] = []
    for attack in attacks:
        name = attack if isinstance(attack, str) else _readable(attack)
        others = (f"{name} #{k}" for k in range(2, len(attacks) + 2))
        names.append(next(other for other in (name, *others) if other not in names))
    return names


def _readable(attack: Any) -> str:
    if is_dataclass(attack) and not isinstance(attack, type):
        values = [(f.name, getattr(attack, f.name)) for f in fields(attack) if getattr(attack, f.name) != f.default]
        return f"{type(attack).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in values)})"
    return definition(attack).rpartition(".")[2].strip("<>")


def _shown(value: Any) -> str:
    return show_number(value) if isinstance(value, float) else str(value)
