"""Validation of configuration fields, and fields that are optional in the key of a result."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, dataclass, field, fields, is_dataclass
from fractions import Fraction
from itertools import chain
from math import inf
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from uiat.errors import UserError, unknown

DefaultT = TypeVar("DefaultT")


def optional_in_key(default: DefaultT) -> DefaultT:
    """Declare a dataclass field that was added later: the key of a result omits it if it has this default."""
    return field(default=default, metadata={"added": True})


def in_key(part: object, entry: "Field[Any]") -> bool:
    """Whether a field of a configuration part belongs to the key of a result."""
    return not (entry.metadata.get("added") and getattr(part, entry.name) == entry.default)


MOST = 10**9
"""Upper limit of numbers without a natural upper bound."""


@dataclass(frozen=True)
class Range:
    """The valid values of a number."""

    low: float = -MOST
    high: float = MOST
    whole: bool = False
    """Whether it must be an integer."""
    inside: bool = False
    """Whether the bounds themselves are excluded."""
    radius: bool = False
    """Whether it is a radius in the norm of its dataclass: an L∞ radius above 1 is invalid."""

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, Real) or (self.whole and not isinstance(value, Integral)):
            return False
        number = cast("float", value)
        return self.low < number < self.high if self.inside else self.low <= number <= self.high

    def advice(self, value: object) -> str:
        """Return which values are valid; a technical upper limit is mentioned only if it is exceeded."""
        low, high = ("above", "below") if self.inside else ("at least", "at most")
        exceeded = isinstance(value, Real) and self.high < cast("float", value) < inf
        parts = [f"{low} {self.low}"] if self.low > -MOST else []
        parts += [f"{high} {self.high}"] if self.high < MOST or exceeded else []
        if self.whole and not isinstance(value, Integral):
            return " of ".join(["a whole number", *parts[:1]])
        return " and ".join(parts) or "a finite number"


COUNT = Range(1, whole=True)
"""A count of at least one."""
FROM_ZERO = Range(0, whole=True)
"""A count that may be zero."""
STEP_COUNT = Range(0, 100_000, whole=True)
"""Steps of an attack, limited so that a configuration from a file cannot run forever."""
SIDE = Range(0, 100_000, whole=True)
"""Pixels along a side of an image."""
SHARE = Range(0, 1)
"""A share, a probability, or the decay of an average."""
WEIGHT = Range(0)
"""The weight of a term, a factor, or a time."""
RADIUS = Range(0, radius=True)
"""A radius in input space."""


class OutOfRange(UserError):
    """An invalid value of a field; `check_numbers` adds the path of the field to the message."""

    def __init__(self, owner: str, name: str, problem: str):
        self.name, self.problem = name, problem
        super().__init__(f"{owner}{name} {problem}")


_checking: ContextVar[bool] = ContextVar("checking", default=True)


@contextmanager
def unchecked() -> Iterator[None]:
    """Disable `require` within the context: `check_numbers` is called later, and reports the path of a field."""
    token = _checking.set(False)
    try:
        yield
    finally:
        _checking.reset(token)


def require(part: object, **allowed: Range) -> None:
    """Validate the fields of a dataclass; to be called in its `__post_init__`.

    Raises an error for a number outside its range, and for a value that is not in the `Literal` type of its field.
    `None` is valid if the field's type includes it; all entries of a tuple are checked.
    """
    if not _checking.get():
        return
    for entry in fields(part):  # type: ignore[arg-type]
        names, value = _names(entry.type), getattr(part, entry.name)
        if names and value not in names:
            raise unknown(entry.name.replace("_", " "), str(value), filter(None, names))
    types = {entry.name: entry.type for entry in fields(part)}  # type: ignore[arg-type]
    for name, bounds in allowed.items():
        value = getattr(part, name)
        for number in value if isinstance(value, tuple | list) else (value,):
            if (number is None and _has_none(types[name])) or number in bounds:
                problem = _large_radius(number, getattr(part, "norm", "linf")) if bounds.radius else ""
            else:
                problem = f"is {number}: give {bounds.advice(number)}."
            if problem:
                raise OutOfRange(f"{type(part).__name__}.", name, problem)


def require_that(part: object, valid: bool, name: str, problem: str) -> None:
    """Raise an error for a field that is invalid together with others; to be called in `__post_init__`."""
    if _checking.get() and not valid:
        raise OutOfRange(f"{type(part).__name__}.", name, problem)


def _names(annotation: Any) -> tuple[Any, ...]:
    """Return the values of a `Literal` type, and `None` if the type includes it."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    parts = [_names(part) or (None,) for part in get_args(annotation) if part is type(None) or _names(part)]
    return tuple(chain(*parts)) if len(parts) == len(get_args(annotation)) else ()


def _has_none(annotation: Any) -> bool:
    """Whether a field's type includes `None`; annotations of a subclass may be strings."""
    return "None" in annotation if isinstance(annotation, str) else type(None) in get_args(annotation)


def check_numbers(part: object, path: str = "") -> None:
    """Raise a `UserError` with the path of the first invalid number of a configuration.

    Only dataclasses of this package are checked: custom ones validate their fields themselves.
    """
    validate = getattr(part, "__post_init__", None)
    if getattr(validate, "__module__", "").startswith("uiat."):
        assert callable(validate)
        try:
            validate()
        except OutOfRange as error:
            name = error.name.replace("_", "-") if path.startswith("--") else error.name
            raise UserError(f"{path}{name} {error.problem}") from None
    for entry in fields(part):  # type: ignore[arg-type]
        if is_dataclass(value := getattr(part, entry.name)):
            check_numbers(value, f"{path}{entry.name}.")


def check_radius(name: str, eps: float | None, norm: str) -> None:
    """Raise a `UserError` for an L∞ radius above 1: pixels lie in [0, 1], so it was probably meant as k/255."""
    if problem := _large_radius(eps, norm):
        raise UserError(f"{name} {problem}")


def _large_radius(eps: float | None, norm: str) -> str:
    """Return what is wrong with an L∞ radius above 1; empty otherwise."""
    if norm != "linf" or eps is None or not eps > 1:
        return ""
    hint = f"did you mean {eps:g}/255?" if eps <= 255 else "give it on that scale, such as 8/255."
    return f"is {eps:g}, but pixels lie in [0, 1]: {hint}"


def number_argument(name: str, value: Any) -> float:
    """Return a number that is an argument in Python; NumPy's scalars and tensors of one number are converted."""
    number = value.item() if getattr(value, "ndim", None) == 0 else value
    if not isinstance(number, int | float):
        raise UserError(f"{name} is {value!r}: give a number, such as 8/255.")
    return number


def show_number(value: float) -> str:
    """Format a number as in papers: pixel fractions as k/255."""
    levels = value * 255
    if 0 < abs(value) < 1 and abs(levels - round(levels)) < 1e-9 and Fraction(str(value)).denominator > 1000:
        return f"{round(levels)}/255"
    return str(value)
