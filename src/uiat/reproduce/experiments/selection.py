"""Selection of each method's weight and learning rate on training images that no run has seen."""

from uiat.config import AnyConfig
from uiat.reproduce.cell import Cell
from uiat.reproduce.experiments.beyond import TUNED_FIELDS, setting_of
from uiat.reproduce.experiments.sweeps import trained_at
from uiat.reproduce.experiments.tables import LAST, TABLE1_METHODS
from uiat.reproduce.measures import Attacked
from uiat.reproduce.scale import Scale, tuned
from uiat.reproduce.table import Entry, Percent, Table

IMAGES = 5_000
"""Unused training images that settings are compared on."""
_LAM = (0.25, 0.5, 1.0, 2.0, 3.5, 7.0)
_BETA = (1.25, 2.5, 3.75, 5.0, 7.5, 10.0)
GRID: dict[str, tuple[float, ...]] = {
    "sat": (6, 7, 8, 9, 10, 12),
    "trades": (1, 2, 3, 6, 9, 12),
    "mart": _BETA,
    "hat": _BETA,
    "iat": _LAM,
    "uiat": _LAM,
    "uiat-oneoff": _LAM,
}
"""Values of a method's own weight; for SAT, which has none, the ε it is trained at, in levels of 255."""
RATES = (0.1, 0.2)
BEST: dict[str, float] = {}
"""The value of the grid with the highest sum of natural and robust accuracy, by method; it is also trained with the
other learning rate. A method is added when its grid is finished."""


def with_value(scale: Scale, method: str, value: float) -> AnyConfig:
    """Return the run of a method with a value of its grid, at the learning rate that the scale has for it."""
    if method == "sat":
        return trained_at(scale, method, value)
    return tuned(scale.config(method), {TUNED_FIELDS[method]: value})


def grid_runs(scale: Scale, method: str) -> dict[str, AnyConfig]:
    """Return the runs of a method: every value of its grid, the best one at both learning rates."""
    runs = {value: [with_value(scale, method, value)] for value in GRID[method]}
    if method in BEST:
        best = runs[BEST[method]]
        other = next(rate for rate in RATES if rate != best[0].train.schedule.lr)
        best.append(tuned(best[0], {"lr": other}))
    radius = {value: f", ε {scale.show_radius(value)}" if method == "sat" else "" for value in runs}
    return {setting_of(run) + radius[value]: run for value, both in runs.items() for run in both}


def selection(scale: Scale) -> Table:
    """Return the accuracy of every setting on unused training images, a section for each method (`cpu` only)."""
    attacks = {"natural": "natural", "robust": "pgd-20"}
    columns = {name: Attacked(attack, IMAGES, LAST, "unused", scale.batch_size) for name, attack in attacks.items()}
    entries = [
        Entry(row, "unused", column, Cell(run) if scale.name == "cpu" else None, Percent(measure), section=name)
        for name, method in TABLE1_METHODS.items()
        for row, run in grid_runs(scale, method).items()
        for column, measure in columns.items()
    ]
    notes = (
        f"Seed 0, last epoch, {IMAGES:,} training images that no run is trained on; robust: PGD-20. The setting with "
        "the highest sum of both is selected. SAT has no weight: its runs differ in the ε they are trained at.",
    )
    title = "Selection of weights and learning rates: accuracy (%)"
    return Table("selection", title, scale, tuple(entries), notes, label="setting", one_seed=True)
