"""Methods at another radius."""

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

LENGTHS = ("eps", "step")
T = TypeVar("T")


def at_radius(part: T, eps: float, of: float = 8 / 255) -> T:
    """Return a method with every length of its attack and inverse (ε, α, ε', α') scaled by eps / of.

    The defaults belong to ε = 8/255; on other data another radius is a fair strength, and the rest keeps pace.
    """
    changes: dict[str, object] = {}
    for field in fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        if field.name in LENGTHS and isinstance(value, float):
            changes[field.name] = value * eps / of
        elif is_dataclass(value):
            changes[field.name] = at_radius(value, eps, of)
    return replace(part, **changes)  # type: ignore[type-var]
