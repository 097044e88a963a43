"""Registry of all tables and figures: functions from a scale to a `Table` or `Figure`."""

from collections.abc import Callable

from uiat.reproduce.experiments import beyond, figures, selection, sweeps, tables
from uiat.reproduce.figure import Figure
from uiat.reproduce.scale import Scale
from uiat.reproduce.table import Table

Experiment = Table | Figure
EXPERIMENTS: dict[str, Callable[[Scale], Experiment]] = {
    "table1": tables.table1,
    "table2": tables.table2,
    "table3": tables.table3,
    "table4": tables.table4,
    "table5": tables.table5,
    "table6": tables.table6,
    "fig1": figures.fig1,
    "fig2": figures.fig2,
    "fig3": sweeps.fig3,
    "fig4": figures.fig4,
    "fig5": figures.fig5,
    "figS1": figures.figs1,
    "figS2": sweeps.figs2,
    "table1-last": selection.table1_selected,
    "fronts": sweeps.fronts,
    "questions": beyond.questions,
    "plus": beyond.plus,
    "tuning": selection.tuning,
    "control": beyond.control,
    "selection": selection.selection,
}
"""In the order of the paper, then those that it does not have."""
