"""Configuration fields that were added after results had been stored."""

from dataclasses import Field, field
from typing import Any, TypeVar

T = TypeVar("T")


def added(default: T) -> T:
    """Declare a dataclass field with this default; while it has it, it is no part of the key of a result."""
    return field(default=default, metadata={"added": True})


def in_key(part: object, entry: "Field[Any]") -> bool:
    """Whether a field of a configuration part belongs to the key of a result."""
    return not (entry.metadata.get("added") and getattr(part, entry.name) == entry.default)
