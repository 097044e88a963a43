"""Numbers on the command line: `8/255` wherever a number is, and radii that fit each other."""

from dataclasses import replace
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from uiat.config import AnyConfig
from uiat.errors import UserError
from uiat.evaluation.inverse_settings import own_inverse
from uiat.ranges import check_radius, show_number
from uiat.recipes.scale import at_radius

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
    attack = getattr(method, "attack", None)
    check_radius("--eps", eps, getattr(attack, "norm", "linf"))
    if attack is None:
        return replace(config, validate=replace(config.validate, eps=eps))
    if not attack.eps:
        raise UserError(
            "--eps scales the lengths of a method, but its ε is 0: give --method.attack.eps and the others."
        )
    method = at_radius(method, eps, attack.eps)
    method = replace(method, attack=replace(method.attack, eps=eps))  # without the rounding of the scaling
    return replace(config, method=method, validate=at_radius(config.validate, eps, attack.eps))


def too_long(method: Any, args: list[str]) -> str:
    """Return one line about a step or an ε' that is longer than ε, unless its own flag is among the words."""
    attack, inverse = getattr(method, "attack", None), own_inverse(method)
    eps = getattr(attack, "eps", 0.0)
    lengths = {"method.attack.step": getattr(attack, "step", None)}
    if inverse is not None and inverse.norm == getattr(attack, "norm", "linf"):
        path = "method.uiat.inverse" if hasattr(method, "uiat") else "method.inverse"
        lengths |= {f"{path}.eps": inverse.eps, f"{path}.step": inverse.step}
    given = {word.partition("=")[0].removeprefix("--") for word in args}
    found = [f"{name} = {show_number(v)}" for name, v in lengths.items() if v and v > eps > 0 and name not in given]
    shown = show_number(eps)
    return f"{', '.join(found)}: longer than ε = {shown}; `--eps {shown}` scales all lengths along" if found else ""
