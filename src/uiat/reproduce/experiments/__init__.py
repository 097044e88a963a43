"""Every table and figure by its name: a function from a scale to what it is made of."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from uiat.reproduce.cell import Cell
from uiat.reproduce.experiments import (
    fig1,
    fig2,
    fig5,
    figs1,
    fronts,
    plus,
    questions,
    sweeps,
    table1,
    table2,
    table3,
    table4,
    table5,
    table6,
    tuning,
)
from uiat.reproduce.scales import Scale


class Experiment(Protocol):
    """A table or a figure at one scale."""

    @property
    def name(self) -> str:
        """Its name, which its files have."""

    @property
    def title(self) -> str:
        """What it shows."""

    def cells(self, seeds: int) -> Iterator[Cell]:
        """Return the runs it needs."""

    def write(self, out: Path, seeds: int) -> list[Path]:
        """Write its files from the runs that are finished."""


EXPERIMENTS: dict[str, Callable[[Scale], Experiment]] = {
    "table1": table1.build,
    "table2": table2.build,
    "table3": table3.build,
    "table4": table4.build,
    "table5": table5.build,
    "table6": table6.build,
    "fig1": fig1.build,
    "fig2": fig2.build,
    "fig3": sweeps.build3,
    "fig4": fig1.build4,
    "fig5": fig5.build,
    "figS1": figs1.build,
    "figS2": sweeps.build_s2,
    "table1-last": table1.build_last,
    "fronts": fronts.build,
    "questions": questions.build,
    "plus": plus.build,
    "tuning": tuning.build,
}
"""In the order of the paper, then what it does not have."""
