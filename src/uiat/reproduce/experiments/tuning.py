"""The tuning budget of the `cpu` scale: three runs a method at one seed, compared on the validation split."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from uiat.config import AnyConfig
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.configs import UNTUNED, tuned
from uiat.reproduce.experiments.table1 import ROWS
from uiat.reproduce.measures import Measure
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Entry, Table

WEIGHTS = {"trades": "omega", "mart": "beta", "hat": "beta", "iat": "lam", "uiat": "lam", "uiat-oneoff": "lam"}
"""The weight of a method's second term; SAT has none."""
COLUMNS = {"natural": "val_natural", "robust": "val_robust"}


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
    """Return the runs of a method: as it is, half the rate, and half the weight (without a weight: twice the rate)."""
    config = UNTUNED[scale.name](method, "CIFAR-10", "ResNet-18")
    lr, field = config.train.schedule.lr, WEIGHTS.get(method)
    other = {"lr": 2 * lr} if field is None else {field: getattr(config.method, field) / 2}
    return {_words(one): one for one in (config, tuned(config, {"lr": lr / 2}), tuned(config, other))}


def _words(config: AnyConfig) -> str:
    symbols = {"omega": "ω", "beta": "β", "lam": "λ"}
    found = {sign: getattr(config.method, name, None) for name, sign in symbols.items()}
    return ", ".join(f"{sign} {value:g}" for sign, value in {"lr": config.train.schedule.lr, **found}.items() if value)


def cell_of(scale: Scale, config: AnyConfig) -> Cell | None:
    """Return the run at the scale that is tuned; the paper gives the settings of its own."""
    return Cell(config) if scale.name == "cpu" else None


@dataclass(frozen=True)
class Tuning(Table):
    """A table whose runs have one seed only."""

    def cells(self, seeds: int) -> Iterator[Cell]:
        """Return the runs it needs."""
        yield from super().cells(1)


def build(scale: Scale) -> Table:
    """Return the table at a scale: a section for each method."""
    entries = [
        Entry(row, "validation", column, cell_of(scale, config), Validated(field), section=name)
        for name, method in ROWS.items()
        for row, config in candidates(scale, method).items()
        for column, field in COLUMNS.items()
    ]
    notes = (
        "Seed 0; accuracy of the best epoch on the validation split, robust under the attack that watches the run. The "
        "run with the highest robust accuracy gives the setting of all other tables at this scale.",
    )
    return Tuning("tuning", "Tuning budget: three runs a method", scale, tuple(entries), notes, label="setting")
