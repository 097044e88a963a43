"""Type checks of values read from files."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from uiat.errors import UserError

INTEGER_LIMIT = 2**63
"""Integers in a file are smaller: floats and tensors could not hold larger ones."""


def fits(value: object, kind: Any) -> bool:
    """Whether a value is of a type: a class, a union, a `Literal`, or a list, tuple or dictionary of these.

    An integer is also a float, but a bool is no number; a list fits a tuple, as in JSON. A protocol is compared by its
    names. Any other type, such as `Any`, accepts every value.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, TypeVar):
        return kind.__bound__ is None or fits(value, kind.__bound__)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is tuple and parts[-1] is not Ellipsis:
        return isinstance(value, tuple | list) and len(value) == len(parts) and all(map(fits, value, parts))
    if origin in (tuple, list):
        return isinstance(value, origin) and all(fits(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, parts[0]) and fits(v, parts[1]) for k, v in value.items())
    if kind in (int, float):
        integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) < INTEGER_LIMIT
        return integer or (kind is float and isinstance(value, float))
    if kind is None:
        return value is None
    if getattr(kind, "_is_protocol", False):
        return is_dataclass(value) and all(hasattr(value, name) for name in _names(kind))
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


@cache
def _names(protocol: type) -> list[str]:
    names = [name for name in dir(protocol) if not name.startswith("_")]
    return [*names, *(["__call__"] if "__call__" in vars(protocol) else [])]


def check_fields(part: Any, substitutes: Mapping[type, tuple[type, ...]] | None = None) -> None:
    """Raise a `UserError` that names the first field of a dataclass with a value of another type than is declared.

    `substitutes` are, for a declared class, further classes that its fields accept.
    """
    try:
        kinds = get_type_hints(type(part))
    except (NameError, TypeError):  # annotations of a custom class that cannot be looked up here
        return
    values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
    accepted = {name: (substitutes or {}).get(kinds[name], ()) for name in values}
    checked = {name: value for name, value in values.items() if not isinstance(value, accepted[name])}
    check_record(checked, kinds, f"{type(part).__name__}.")


def check_record(record: Mapping[str, Any], kinds: Mapping[str, Any], name: str = "") -> None:
    """Raise a `UserError` that names the first value of another type than is declared; a missing one is not checked."""
    for key, value in record.items():
        if key in kinds and not fits(value, kinds[key]):
            raise UserError(f"{name}{key} is {show_value(value)}, not {show_type(kinds[key])}.")


def show_value(value: object) -> str:
    """Format a value for a message: short, and with unprintable characters escaped."""
    return ascii(str(value)[:100])


def show_type(kind: Any) -> str:
    """Format a type for a message: `of type int`, or `one of 'a', 'b'`."""
    kind = kind.__bound__ if isinstance(kind, TypeVar) else kind
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}"
    named = isinstance(kind, type) and not get_args(kind)
    return f"of type {kind.__name__ if named else str(kind).replace('typing.', '')}"
