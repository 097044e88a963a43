"""Tuning and selection of each method's weight and learning rate at the `cpu` scale.

Tuning compares three runs a method on the validation split, selection a grid on training images that no run has seen.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from uiat.config import AnyConfig
from uiat.recipes.variants import tuned
from uiat.reproduce.cell import Cell, Store, seed_stores
from uiat.reproduce.experiments.sweeps import trained_at
from uiat.reproduce.experiments.tables import LAST, TABLE1_METHODS, last_columns, table1_entries, table1_last
from uiat.reproduce.measures import Attacked, Measure
from uiat.reproduce.scale import Scale
from uiat.reproduce.table import Entry, Percent, Table

TUNED_FIELDS = {"trades": "omega", "mart": "beta", "hat": "beta", "iat": "lam", "uiat": "lam", "uiat-oneoff": "lam"}
"""The weight of a method's second term; SAT has none."""


@dataclass(frozen=True)
class Validated:
    """Accuracy of the best epoch on the validation split, in percent."""

    field: str
    digits: int = 2
    measure: Measure | None = None

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Read it from the card of the first seed."""
        return [] if cell is None else [100 * store.card["best"][self.field] for store in seed_stores(cell, out, 1)]


def candidates(scale: Scale, method: str) -> dict[str, AnyConfig]:
    """Return the runs of a method: the default, twice the rate, and half the weight at the better of the two rates.

    The better rate is the one in `scale.tuned`. A method without a weight tries half the rate instead.
    """
    config = scale.runs(method, "CIFAR-10", "ResNet-18")
    lr, field = config.train.schedule.lr, TUNED_FIELDS.get(method)
    better = scale.tuned.get(method, {}).get("lr", lr)
    third = {"lr": lr / 2} if field is None else {"lr": better, field: getattr(config.method, field) / 2}
    return {setting_of(run): run for run in (config, tuned(config, {"lr": 2 * lr}), tuned(config, third))}


def setting_of(config: AnyConfig) -> str:
    """Return the learning rate and the weight of a run as text."""
    symbols = {"omega": "ω", "beta": "β", "lam": "λ"}
    weights = {sign: getattr(config.method, name, None) for name, sign in symbols.items()}
    return ", ".join(
        f"{sign} {value:g}" for sign, value in {"lr": config.train.schedule.lr, **weights}.items() if value
    )


def tuning(scale: Scale) -> Table:
    """Return the tuning budget, a section for each method; only the `cpu` scale is tuned, the paper gives its own."""
    entries = [
        Entry(row, "validation", column, Cell(config) if scale.name == "cpu" else None, Validated(field), section=name)
        for name, method in TABLE1_METHODS.items()
        for row, config in candidates(scale, method).items()
        for column, field in (("natural", "val_natural"), ("robust", "val_robust"))
    ]
    notes = (
        "Seed 0; accuracy of the best epoch on the validation split, robust under the validation attack. The "
        "run with the highest robust accuracy gives the setting of all other tables at this scale.",
    )
    title = "Tuning budget: three runs a method"
    return Table("tuning", title, scale, tuple(entries), notes, label="setting", one_seed=True)


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
BEYOND: dict[tuple[float, ...], tuple[float, float]] = {
    GRID["sat"]: (5, 14),
    GRID["trades"]: (0.5, 18),
    _BETA: (0.625, 15),
    _LAM: (0.125, 14),
}
"""The value below and the one above each grid, of which one is added if the best value is at an end."""
RATES = (0.1, 0.2)


@dataclass(frozen=True)
class Setting:
    """A run of a method with a value of its grid, and its label."""

    method: str
    value: float
    label: str
    config: AnyConfig

    def accuracies(self, scale: Scale) -> tuple[float, float] | None:
        """Return natural and robust accuracy (%) on the unused images at seed 0; `None` before they are measured."""
        if scale.finished_in is None:
            return None
        store = Store(Cell(self.config), scale.finished_in)
        found = [store.read(measure) for measure in measures(scale).values()] if store.trained else []
        values = [100 * facts["accuracy"] for facts in found if facts is not None]
        return (values[0], values[1]) if len(values) == 2 else None


def measures(scale: Scale) -> dict[str, Attacked]:
    """Return what is measured, by column: accuracy on the unused images, natural and under PGD-20."""
    attacks = {"natural": "natural", "robust": "pgd-20"}
    return {name: Attacked(attack, IMAGES, LAST, "unused", scale.batch_size) for name, attack in attacks.items()}


def setting(scale: Scale, method: str, value: float, lr: float | None = None) -> Setting:
    """Return a method with a value of its grid, at the learning rate that the scale has for it unless one is given."""
    if method == "sat":
        config, radius = trained_at(scale, method, value), f", ε {scale.show_radius(value)}"
    else:
        config, radius = tuned(scale.config(method), {TUNED_FIELDS[method]: value}), ""
    config = config if lr is None else tuned(config, {"lr": lr})
    return Setting(method, value, setting_of(config) + radius, config)


def best_of(scale: Scale, settings: list[Setting]) -> Setting | None:
    """Return the setting with the highest natural + robust accuracy, the first of equals; `None` if one is missing."""
    scores = [setting.accuracies(scale) for setting in settings]
    sums = [sum(found) for found in scores if found is not None]
    return settings[sums.index(max(sums))] if len(sums) == len(settings) else None


def planned(scale: Scale, method: str) -> tuple[list[Setting], Setting | None]:
    """Return the settings of a method whose runs are known to be needed, and the selected one if all are finished.

    First the grid; if its best value is at an end, one more value beyond it; then the best value at the other rate.
    """
    grid = GRID[method]
    settings = [setting(scale, method, value) for value in grid]
    best = best_of(scale, settings)
    if best is None:
        return settings, None
    if best.value in (grid[0], grid[-1]):
        settings.append(setting(scale, method, BEYOND[grid][best.value == grid[-1]]))
        best = best_of(scale, settings)
        if best is None:
            return settings, None
    used = best.config.train.schedule.lr
    settings.append(setting(scale, method, best.value, next(rate for rate in RATES if rate != used)))
    return settings, best_of(scale, settings)


def selection(scale: Scale) -> Table:
    """Return the accuracy of every setting on unused training images, a section for each method (`cpu` only)."""
    by_name = {name: planned(scale, method) for name, method in TABLE1_METHODS.items()}
    entries = [
        Entry(own.label, "unused", column, cell, Percent(measure), section=name)
        for name, (settings, _) in by_name.items()
        for own in settings
        for cell in [Cell(own.config) if scale.name == "cpu" else None]
        for column, measure in measures(scale).items()
    ]
    notes = [
        f"Seed 0, last epoch, {IMAGES:,} training images that no run is trained on; robust: PGD-20. The setting with "
        "the highest sum of both is selected. SAT has no weight: its runs differ in the ε they are trained at. If the "
        "best value is at an end of its grid, one beyond it is added; the best value is also trained with the other "
        "learning rate.",
    ]
    chosen = [f"{name}: {own.label}" for name, (_, own) in by_name.items() if own is not None]
    notes += [f"Selected: {'; '.join(chosen)}."] if chosen else []
    kept = [f"{name}: {own.label}" for name, (runs, _) in by_name.items() if (own := keeps_natural(scale, runs))]
    most = f"The most robust whose natural accuracy is not below SAT's at ε = {scale.show_radius(8)}"
    notes += [f"{most}: {'; '.join(kept)}."] if kept else []
    title = "Selection of weights and learning rates: accuracy (%)"
    return Table("selection", title, scale, tuple(entries), tuple(notes), label="setting", one_seed=True)


def keeps_natural(scale: Scale, settings: list[Setting]) -> Setting | None:
    """Return the most robust finished setting whose natural accuracy is not below that of SAT at the usual ε."""
    plain = setting(scale, "sat", 8).accuracies(scale)
    found = {own: accuracies for own in settings if (accuracies := own.accuracies(scale)) is not None}
    kept = {own: robust for own, (natural, robust) in found.items() if plain is not None and natural >= plain[0]}
    return max(kept, key=lambda own: kept[own]) if kept else None


def table1_selected(scale: Scale) -> Table:
    """Return Table 1 at the last epoch, with a second row on CIFAR-10 for each method whose selection is finished."""
    table, same, entries = table1_last(scale), [], []
    for row, method in TABLE1_METHODS.items():
        entries += [entry for entry in table.entries if entry.row == row]
        chosen = planned(scale, method)[1] if scale.name == "cpu" else None
        if chosen is None:
            continue
        if chosen.config == scale.config(method):
            same.append(row)
        else:
            name = f"{row}, selected: {chosen.label}"
            entries += table1_entries(scale, name, "CIFAR-10", chosen.config, last_columns(scale), LAST)
    more = len(entries) > len(table.entries)
    notes = ["Rows have the paper's weight, or the one that `selection` selects."] if more else []
    notes += [f"The paper's weight is selected for {', '.join(same)}."] if same else []
    return replace(table, entries=tuple(entries), notes=(*table.notes, *notes))
