"""Numbers on the command line: `8/255` wherever a number is, and radii that fit each other."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from uiat.attacks import norm_of
from uiat.balls import Norm
from uiat.config import AnyConfig
from uiat.errors import UserError
from uiat.methods import MethodConfig
from uiat.ranges import check_radius, show_number
from uiat.recipes.scale import LENGTHS, at_radius

REGISTRY = ConstructorRegistry()


def parse_number(text: str) -> float:
    """Read a decimal number or a fraction of two."""
    over, slash, under = text.partition("/")
    try:
        return float(over) / float(under) if slash else float(over)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a number; write it as 0.03 or 8/255") from None


@REGISTRY.primitive_rule
def _fractions(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[float] | None:
    if info.type is not float:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="NUMBER",
        instance_from_str=lambda args: parse_number(args[0]),
        is_instance=lambda value: isinstance(value, int | float) and not isinstance(value, bool),
        str_from_instance=lambda value: [show_number(value)],
    )


def with_radius(config: AnyConfig, eps: float) -> AnyConfig:
    """Return a run at another ε, with every length of its attack and inverse (α, ε', α') scaled along."""
    method: Any = config.method
    attack = config.method.attack
    check_radius("--eps", eps, norm_of(attack))
    if attack is None:
        return replace(config, validate=replace(config.validate, eps=eps))
    if not attack.eps:
        raise UserError(
            "--eps scales the lengths of a method, but its ε is 0: give --method.attack.eps and the others."
        )
    method = at_radius(method, eps, attack.eps)
    method = replace(method, attack=replace(method.attack, eps=eps))  # without the rounding of the scaling
    return replace(config, method=method, validate=at_radius(config.validate, eps, attack.eps))


def too_long(method: MethodConfig, args: list[str]) -> str:
    """Return one line about a step or an ε' that is longer than ε, unless its own flag is among the words."""
    if method.attack is None:
        return ""
    eps, norm = method.attack.eps, norm_of(method.attack)
    given = {word.partition("=")[0].removeprefix("--") for word in args}
    longer = [
        f"{name} = {show_number(length)}"
        for name, length in _lengths(method, "method.", norm)
        if length > eps > 0 and name not in given
    ]
    shown = show_number(eps)
    return f"{', '.join(longer)}: longer than ε = {shown}; `--eps {shown}` scales all lengths along" if longer else ""


def _lengths(part: Any, path: str, norm: Norm) -> Iterator[tuple[str, float]]:
    """Name the lengths in this norm of a configuration and its parts, without those of a part that is off."""
    values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
    if not values.get("enabled", True):
        return
    for name, value in values.items():
        if is_dataclass(value):
            yield from _lengths(value, f"{path}{name}.", norm)
        elif name in LENGTHS and isinstance(value, float) and values.get("norm", norm) == norm:
            yield f"{path}{name}", value
