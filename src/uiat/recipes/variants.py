"""Variants of a configuration: another perturbation radius, learning rate, or other numbers of the method."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from uiat.attacks import norm_of
from uiat.config import AnyConfig
from uiat.errors import UserError
from uiat.fields import check_radius

SCALED_FIELDS = ("eps", "step")
_Part = TypeVar("_Part")


def at_radius(part: _Part, eps: float, of: float = 8 / 255) -> _Part:
    """Return a method with all radii and step sizes of its attack and inverse (ε, α, ε', α') scaled by eps / of.

    The defaults belong to ε = 8/255; at another radius, step sizes and ε' change in proportion.
    """
    changes: dict[str, object] = {}
    for field in fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        if field.name in SCALED_FIELDS and isinstance(value, float):
            changes[field.name] = value * eps / of
        elif is_dataclass(value):
            changes[field.name] = at_radius(value, eps, of)
    return replace(part, **changes)  # type: ignore[type-var]


def with_radius(config: AnyConfig, eps: float, name: str = "--eps") -> AnyConfig:
    """Return a configuration at another ε, with radii and step sizes of attack and inverse (α, ε', α') scaled along.

    `name` is that of the argument in error messages.
    """
    method: Any = config.method
    attack = config.method.attack
    check_radius(name, eps, norm_of(attack))
    if attack is None:
        return replace(config, validate=replace(config.validate, eps=eps))
    if not attack.eps:
        raise UserError(
            f"{name} scales all radii and step sizes, but the method's ε is 0: give --method.attack.eps and the others."
        )
    method = at_radius(method, eps, attack.eps)
    method = replace(method, attack=replace(method.attack, eps=eps))  # without the rounding of the scaling
    return replace(config, method=method, validate=at_radius(config.validate, eps, attack.eps))


def change_method(config: AnyConfig, part: str | None, **changes: Any) -> AnyConfig:
    """Return a configuration with other numbers in its method, or in one part of it."""
    if part is not None:
        changes = {part: replace(getattr(config.method, part), **changes)}
    return replace(config, method=replace(config.method, **changes))  # type: ignore[type-var]


def tuned(config: AnyConfig, values: Mapping[str, float]) -> AnyConfig:
    """Return a run with another learning rate (`lr`), another `weight_decay`, or other numbers of its method."""
    numbers = dict(values)
    schedule = replace(config.train.schedule, lr=numbers.pop("lr", config.train.schedule.lr))
    decay = numbers.pop("weight_decay", config.train.weight_decay)
    config = replace(config, train=replace(config.train, schedule=schedule, weight_decay=decay))
    return change_method(config, None, **numbers)
