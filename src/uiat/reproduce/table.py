"""A table of the paper as data: the run, the reading and the paper's figure of each place.

The figures of the paper's six tables are in paper_tables.csv; `benchmarks/extract_paper_tables.py` extracts them anew.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import mean
from typing import Any, Protocol

import torch

from uiat.bench.race import as_rounds, timing_warning
from uiat.bench.timed import passes_per_image
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.measures import Attacked, Measure
from uiat.reproduce.scale import Scale
from uiat.reproduce.timing import TableRace, Timing

FIGURES_FILE = Path(__file__).with_name("paper_tables.csv")


@cache
def read_figures() -> dict[tuple[str, str, str], str]:
    """Return every figure by (table, row, column), as the paper writes it: `50.40` stays `50.40`."""
    if not FIGURES_FILE.exists():
        return {}
    with FIGURES_FILE.open(newline="", encoding="utf-8") as file:
        return {(line["table"], line["row"], line["column"]): line["value"] for line in csv.DictReader(file)}


def paper_figure(table: str, row: str, column: str) -> str:
    """Return one figure; a place that the paper's table does not have is a mistake in this package."""
    return read_figures()[table, row, column]


class Reading(Protocol):
    """How the numbers of a place are read from finished runs."""

    @property
    def measure(self) -> Measure | None:
        """What has to be measured on the cell for it, beside the training."""

    @property
    def digits(self) -> int:
        """Decimals that are shown."""

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Return a number for each seed that is known; a single one for times."""


@dataclass(frozen=True)
class Percent:
    """Accuracy in percent."""

    measure: Attacked
    digits: int = 2

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Read the accuracy of each finished seed."""
        if cell is None:
            return []
        results = [store.read(self.measure) for store in seed_stores(cell, out, seeds, self.measure)]
        return [100 * facts["accuracy"] for facts in results if facts is not None]


@dataclass(frozen=True)
class EpochTime:
    """Time of an epoch in the fastest round, in units of `unit` seconds."""

    timing: Timing
    method: str
    unit: float
    digits: int = 2
    measure: Measure | None = None

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Read the fastest round: other work on the machine makes others slower, and none faster."""
        rounds = self.rounds(out)
        return [min(rounds) / self.unit] if rounds else []

    def rounds(self, out: Path) -> list[float]:
        """Read the seconds of every round; empty before the race."""
        return self.timing.epoch_seconds(self.method, out)


@dataclass(frozen=True)
class EpochPasses:
    """Passes of an epoch for each training image: forwards and backwards together, exact."""

    config: Any
    digits: int = 1
    measure: Measure | None = None

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Count the passes; no run is needed for that."""
        epochs = self.config.train.epochs
        return [sum(passes_per_image(self.config.method, epochs)) / epochs]


@dataclass(frozen=True)
class Entry:
    """One place of a table."""

    row: str
    group: str
    """The heading that several columns share; empty: none."""
    column: str
    cell: Cell | None
    """The run; `None`: this scale has none for it."""
    reading: Reading
    paper: str = ""
    """The paper's figure; empty: it has none."""
    section: str = ""
    """Rows of one section are compared with each other."""
    best: str = "most"
    """Which is best in a column of a section: `most`, `least`, or empty for none."""

    def runs(self, seeds: int) -> list[Cell]:
        """Return its run at each seed, with the measurement that its reading needs."""
        measures = () if self.reading.measure is None else (self.reading.measure,)
        return [] if self.cell is None else [replace(self.cell.at_seed(s), measures=measures) for s in range(seeds)]


@dataclass(frozen=True)
class Table:
    """A table of the paper at one scale."""

    name: str
    title: str
    scale: Scale
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    label: str = "method"
    """What the first column holds."""
    timings: tuple[Timing, ...] = ()
    """What is timed for it, beside the runs."""
    name_sections: bool = True
    """Whether the sections have names to show; else they only say which rows are compared."""
    one_seed: bool = False
    """Whether its runs have one seed, however many the others have."""

    def cells(self, seeds: int) -> Iterator[Cell]:
        """Return the runs it needs."""
        groups = {entry.group for entry in self.entries if entry.cell is not None}
        for entry in self.entries:
            section = entry.section if self.name_sections else ""
            words = (section, entry.row, entry.group if len(groups) > 1 else "")
            label = f"{self.name}: {', '.join(filter(None, words))}"
            yield from (cell.labelled(label) for cell in entry.runs(1 if self.one_seed else seeds))


@dataclass(frozen=True)
class Filled:
    """A table with the numbers of the runs that are finished."""

    table: Table
    numbers: dict[Entry, tuple[float, ...]]
    """A value for each seed that is finished; entries without one are left out."""
    seeds: int
    devices: tuple[str, ...] = ()
    """What its times were taken on."""
    timing_warning: str = ""
    """Why they cannot be trusted; empty if they can."""

    def rows(self) -> list[tuple[str, str]]:
        """Return (section, row) in order."""
        return list(dict.fromkeys((entry.section, entry.row) for entry in self.table.entries))

    def row_label(self, row: tuple[str, str]) -> str:
        """Return the label of a row."""
        section, name = row
        return f"{section}, {name}" if section and self.table.name_sections else name

    def columns(self) -> list[tuple[str, str]]:
        """Return (group, column) in order."""
        return list(dict.fromkeys((entry.group, entry.column) for entry in self.table.entries))

    def at(self, row: tuple[str, str], column: tuple[str, str]) -> Entry | None:
        """Return the entry of a place, if there is one."""
        return self._places.get((*row, *column))

    @cached_property
    def _places(self) -> dict[tuple[str, str, str, str], Entry]:
        return {(e.section, e.row, e.group, e.column): e for e in self.table.entries}

    def is_best(self, entry: Entry) -> bool:
        """Whether no finished row of the section is better in this column; a row alone is not the best of any."""
        place = (entry.section, entry.group, entry.column)
        rivals = [e for e in self.numbers if (e.section, e.group, e.column) == place]
        if entry not in self.numbers or not entry.best or len(rivals) < 2:
            return False
        means = [round(mean(self.numbers[e]), entry.reading.digits) for e in rivals]
        value = round(mean(self.numbers[entry]), entry.reading.digits)
        return value == (max(means) if entry.best == "most" else min(means))


def races_of(experiments: Iterable[object], out: Path, device: torch.device, *, anew: bool = False) -> list[TableRace]:
    """Return the races of some tables and figures."""
    tables = [experiment for experiment in experiments if isinstance(experiment, Table)]
    return [TableRace(table.name, timing, out, device, anew) for table in tables for timing in table.timings]


def fill(table: Table, out: Path, seeds: int) -> Filled:
    """Read the numbers of a table from finished runs."""
    readings = {entry: tuple(entry.reading.values(entry.cell, out, seeds)) for entry in table.entries}
    numbers = {entry: values for entry, values in readings.items() if values}
    devices = dict.fromkeys(device for timing in table.timings if (device := timing.device(out)))
    return Filled(table, numbers, seeds, tuple(devices), _timing_warning(table, out))


def _timing_warning(table: Table, out: Path) -> str:
    """Say once why the times of a table cannot be trusted, however many races they are from."""
    rounds = {
        f"{entry.row}, {entry.column}": as_rounds(seconds)
        for entry in table.entries
        if isinstance(entry.reading, EpochTime) and (seconds := entry.reading.rounds(out))
    }
    return timing_warning(rounds)
