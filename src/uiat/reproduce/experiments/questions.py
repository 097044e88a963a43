"""What the paper leaves open: one choice changed at a time around UIAT's defaults."""

from typing import Any

from uiat.config import AnyConfig
from uiat.reproduce.cell import Cell
from uiat.reproduce.configs import change_method
from uiat.reproduce.readings import Percent
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Table, make_entry

COLUMNS = ("Natural", "PGD", "Robust")
CHANGES: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "gradient through p": ("uiat", None, {"detach_target": False}),
    "p from running statistics": ("uiat", None, {"target_statistics": "running"}),
    "L1 as a sum": ("uiat", "inverse", {"reduction": "sum"}),
    "no momentum": ("uiat", "momentum", {"enabled": False}),
    "instance-wise, with momentum": ("iat", "momentum", {"enabled": True}),
}
"""What is changed: the method, its part, and the fields."""
RADII = {"ε' halved": 0.5, "ε' doubled": 2.0}
"""ε' and its step, as multiples of the default."""


def variants(scale: Scale) -> dict[str, AnyConfig]:
    """Return the runs by what is changed; the first is the default."""
    default = scale.config("uiat")
    found = {"UIAT as it is": default}
    for name, (method, part, fields) in CHANGES.items():
        found[name] = change_method(scale.config(method), part, **fields)
    inverse: Any = default.method.inverse
    for name, times in RADII.items():
        found[name] = change_method(default, "inverse", eps=times * inverse.eps, step=times * inverse.step)
    return found


def build(scale: Scale) -> Table:
    """Return the table at a scale."""
    entries = [
        make_entry(name, scale.data["CIFAR-10"], column, Cell(config), Percent(scale.attacked(column)))
        for name, config in variants(scale).items()
        for column in COLUMNS
    ]
    title = "Open questions: UIAT with one choice changed, accuracy (%)"
    notes = ("β, γ, T and T' are in Figure S2.",)
    return Table("questions", title, scale, tuple(entries), notes, label="changed")
