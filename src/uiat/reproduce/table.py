"""Tables of the paper as data: the run, the reading and the paper's figure of each entry.

The figures of the paper's six tables are in paper_tables.csv; `benchmarks/extract_paper_tables.py` extracts them.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import mean
from typing import Any, Protocol

import torch

from uiat.bench.interleaved_timing import as_rounds, timing_warning
from uiat.bench.pass_count import passes_per_image
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.measures import Attacked, Measure
from uiat.reproduce.scale import Scale
from uiat.reproduce.timing import TableBenchmark, Timing

FIGURES_FILE = Path(__file__).with_name("paper_tables.csv")


@cache
def read_figures() -> dict[tuple[str, str, str], str]:
    """Return every figure by (table, row, column), as the paper writes it: `50.40` stays `50.40`."""
    with FIGURES_FILE.open(newline="", encoding="utf-8") as file:
        return {(line["table"], line["row"], line["column"]): line["value"] for line in csv.DictReader(file)}


def paper_figure(table: str, row: str, column: str) -> str:
    """Return one figure; `KeyError` if the paper's table has no such entry."""
    return read_figures()[table, row, column]


class Reading(Protocol):
    """How the numbers of an entry are read from finished runs."""

    @property
    def measure(self) -> Measure | None:
        """The measurement that it needs, besides the training."""

    @property
    def digits(self) -> int:
        """Number of decimals shown."""

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Return one number for each finished seed; for times, a single number."""


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
    """Time of an epoch in the fastest repetition, in units of `unit` seconds."""

    timing: Timing
    method: str
    unit: float
    digits: int = 2
    measure: Measure | None = None

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Read the fastest repetition: other work on the machine only makes repetitions slower."""
        seconds = self.repetitions(out)
        return [min(seconds) / self.unit] if seconds else []

    def repetitions(self, out: Path) -> list[float]:
        """Read the seconds of every repetition; empty before the benchmark."""
        return self.timing.epoch_seconds(self.method, out)


@dataclass(frozen=True)
class EpochPasses:
    """Passes of an epoch for each training image: forwards and backwards together, exact."""

    config: Any
    digits: int = 1
    measure: Measure | None = None

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Count the passes; needs no run."""
        epochs = self.config.train.epochs
        return [sum(passes_per_image(self.config.method, epochs)) / epochs]


@dataclass(frozen=True)
class Entry:
    """One entry of a table."""

    row: str
    group: str
    """The heading that several columns share; empty: none."""
    column: str
    cell: Cell | None
    """The run; `None` if this scale has none."""
    reading: Reading
    paper: str = ""
    """The paper's figure; empty if it has none."""
    section: str = ""
    """Rows of one section are compared with each other."""
    best: str = "most"
    """Which value is best in a column of a section: `most`, `least`, or empty for none."""

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
    """Heading of the first column."""
    timings: tuple[Timing, ...] = ()
    """Benchmarks that it shows, besides runs."""
    name_sections: bool = True
    """Whether names of sections are shown; otherwise they only group the rows that are compared."""
    one_seed: bool = False
    """Whether its runs have one seed, regardless of --seeds."""

    def cells(self, seeds: int) -> Iterator[Cell]:
        """Return the runs it needs."""
        groups = {entry.group for entry in self.entries if entry.cell is not None}
        for entry in self.entries:
            section = entry.section if self.name_sections else ""
            parts = (section, entry.row, entry.group if len(groups) > 1 else "")
            label = f"{self.name}: {', '.join(filter(None, parts))}"
            yield from (cell.labelled(label) for cell in entry.runs(1 if self.one_seed else seeds))


@dataclass(frozen=True)
class Filled:
    """A table with the numbers of the runs that are finished."""

    table: Table
    numbers: dict[Entry, tuple[float, ...]]
    """Values of the finished seeds; entries without any are omitted."""
    seeds: int
    devices: tuple[str, ...] = ()
    """Devices of its benchmarks."""
    timing_warning: str = ""
    """Why the times are unreliable; empty if they are not."""

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

    @cached_property
    def places(self) -> dict[tuple[tuple[str, str], tuple[str, str]], Entry]:
        """Return the entries by row and column."""
        return {((e.section, e.row), (e.group, e.column)): e for e in self.table.entries}

    def is_best(self, entry: Entry) -> bool:
        """Whether no finished row of the section is better in this column; a single row is not called the best."""
        place = (entry.section, entry.group, entry.column)
        rivals = [e for e in self.numbers if (e.section, e.group, e.column) == place]
        if entry not in rivals or not entry.best or len(rivals) < 2:
            return False
        means = {rival: round(mean(self.numbers[rival]), entry.reading.digits) for rival in rivals}
        best = max if entry.best == "most" else min
        return means[entry] == best(means.values())


def benchmarks_of(
    experiments: Iterable[object], out: Path, device: torch.device, *, retime: bool = False
) -> list[TableBenchmark]:
    """Return the benchmarks of some tables and figures."""
    tables = [experiment for experiment in experiments if isinstance(experiment, Table)]
    return [TableBenchmark(table.name, timing, out, device, retime) for table in tables for timing in table.timings]


def fill(table: Table, out: Path, seeds: int) -> Filled:
    """Read the numbers of a table from finished runs."""
    readings = {entry: tuple(entry.reading.values(entry.cell, out, seeds)) for entry in table.entries}
    numbers = {entry: values for entry, values in readings.items() if values}
    devices = dict.fromkeys(device for timing in table.timings if (device := timing.device(out)))
    repetitions = {  # of all benchmarks, for one warning
        f"{entry.row}, {entry.column}": as_rounds(seconds)
        for entry in table.entries
        if isinstance(entry.reading, EpochTime) and (seconds := entry.reading.repetitions(out))
    }
    return Filled(table, numbers, seeds, tuple(devices), timing_warning(repetitions))
