"""Fields of configurations: which numbers they may hold, and which belong to the key of a result."""

from dataclasses import Field, field, fields, is_dataclass
from fractions import Fraction
from math import inf, isfinite
from typing import Any, TypeVar

from uiat.errors import UserError

T = TypeVar("T")


def added(default: T) -> T:
    """Declare a dataclass field that was added later: while it has this default, the key of a result leaves it out."""
    return field(default=default, metadata={"added": True})


def in_key(part: object, entry: "Field[Any]") -> bool:
    """Whether a field of a configuration part belongs to the key of a result."""
    return not (entry.metadata.get("added") and getattr(part, entry.name) == entry.default)


LEAST: dict[str, int] = {
    **dict.fromkeys(("epochs", "batch_size", "micro_batch", "helper_epochs"), 1),
    **dict.fromkeys(("eps", "step", "steps", "lr", "momentum", "weight_decay", "log_every", "checkpoint_minutes"), 0),
    **dict.fromkeys(("decay", "gamma", "warmup", "original", "low_momentum", "norm_momentum", "label_smoothing"), 0),
}
"""The smallest value that a field of this name may have."""
MOST: dict[str, int] = {
    **dict.fromkeys(("decay", "original", "low_momentum", "norm_momentum", "label_smoothing"), 1),
    **dict.fromkeys(("steps", "size", "crop", "cutout"), 100_000),
}
"""The largest value that a field of this name may have."""


def check_numbers(part: object, path: str = "", norm: str = "linf") -> None:
    """Raise a `UserError` that names the first number of a configuration that no run can be made with.

    `norm` is that of radii in parts which have none of their own.
    """
    norm = getattr(part, "norm", None) or norm
    for entry in fields(part):  # type: ignore[arg-type]
        name, value = f"{path}{entry.name}", getattr(part, entry.name)
        if is_dataclass(value):
            check_numbers(value, f"{name}.", norm)
        elif isinstance(value, int | float):
            check_number(name, value)
            if entry.name == "eps":
                check_radius(name, value, norm)


def check_number(name: str, value: float) -> None:
    """Refuse a number that is not finite, or outside the range that its name (`a.b.name`, `--name`) has."""
    key = name.rpartition(".")[2].lstrip("-")
    if not (isfinite(value) and LEAST.get(key, -inf) <= value <= MOST.get(key, inf)):
        least = f"at least {LEAST[key]}" if key in LEAST else "a finite number"
        most = f" and at most {MOST[key]}" if key in MOST else ""
        raise UserError(f"{name} is {value}: give {least}{most}.")


def check_radius(name: str, eps: float, norm: str) -> None:
    """Refuse an L∞ radius above 1: pixels lie in [0, 1], so it was most likely meant in levels of 255."""
    if norm == "linf" and eps > 1:
        hint = f"did you mean {eps:g}/255?" if eps <= 255 else "give it on that scale, such as 8/255."
        raise UserError(f"{name} is {eps:g}, but pixels lie in [0, 1]: {hint}")


def show_number(value: float) -> str:
    """Write a number as papers do: pixel fractions as k/255."""
    levels = value * 255
    if 0 < abs(value) < 1 and abs(levels - round(levels)) < 1e-9 and Fraction(str(value)).denominator > 1000:
        return f"{round(levels)}/255"
    return str(value)
