"""Extension of a run by further epochs, where its past does not depend on how many it has."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from uiat.config import AnyConfig
from uiat.errors import UserError
from uiat.types import Clock

GRID = 64
"""Steps of an epoch at which learning rates are compared."""


def extended(config: AnyConfig, epochs: int, done: int, place: Path) -> AnyConfig:
    """Return the configuration of a run in `place` with more epochs, of which `done` have begun.

    Raises a `UserError` if a run of so many epochs would have been another one in these.
    """
    before = config.train.epochs
    if epochs < before:
        raise UserError(f"{place} has {before} epochs, more than the {epochs} of --train.epochs: give more of them.")
    if reason := obstacle(config, epochs, min(done, before)):
        raise UserError(
            f"{place} has {before} epochs and cannot be extended to {epochs}: {reason}. Train a new run with "
            f"--train.epochs {epochs}; --init {place} starts it from these weights."
        )
    return replace(config, train=replace(config.train, epochs=epochs))


def obstacle(config: AnyConfig, epochs: int, done: int) -> str:
    """Return what in the first `done` epochs depends on the number of epochs; "" if the run can be extended."""
    plan, method = config.train, config.method
    if epochs == plan.epochs:
        return ""
    old, new = plan.epochs * GRID, epochs * GRID
    rates = ((plan.schedule.at(k, old), plan.schedule.at(k, new)) for k in range(done * GRID))
    if any(first != second for first, second in rates):
        return f"its learning rate ({plan.schedule.name}) depends on the number of epochs"
    if method.needs_helper and not method.helper and method.helper_epochs is None:
        return "its helper was trained for as many epochs as the run has"
    for name, when in (("method.selectable_from", method.selectable_from), *_times(method, "method.")):
        first, second = (Clock(1, 0, count).epoch_at(when) for count in (plan.epochs, epochs))
        # the table of p is filled in the epoch before
        if first != second and min(first, second) - 1 <= done:
            return f"{name} = {when:g} is epoch {first} of {plan.epochs}, and epoch {second} of {epochs}"
    return ""


def _times(part: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the epochs, or fractions of the run, at which the enabled parts of a method change what they do."""
    if getattr(part, "enabled", True):
        for field in fields(part):
            value, name = getattr(part, field.name), f"{path}{field.name}"
            if is_dataclass(value):
                yield from _times(value, f"{name}.")
            elif field.name in ("start", "epoch") and isinstance(value, int | float):
                yield name, value
