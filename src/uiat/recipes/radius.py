"""Methods at another perturbation radius."""

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

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
