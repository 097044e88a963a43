"""Table 1: adversarial training methods on three data sets, under three attacks."""

from uiat.reproduce.cell import Cell
from uiat.reproduce.paper import paper_figure
from uiat.reproduce.readings import Percent
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Entry, Table, make_entry

ROWS = {
    "SAT": "sat",
    "TRADES": "trades",
    "MART": "mart",
    "HAT": "hat",
    "UIAT": "uiat",
    "UIAT (One-off)": "uiat-oneoff",
}
COLUMNS = ("Natural", "PGD", "CW", "AA")


def build(scale: Scale) -> Table:
    """Return the table at a scale: a group of columns for each data set that is measured."""
    entries = [_entry(scale, data, row, column) for row in ROWS for data in scale.data for column in COLUMNS]
    return Table("table1", "Methods compared: natural and robust accuracy (%)", scale, tuple(entries))


def _entry(scale: Scale, data: str, row: str, column: str) -> Entry:
    cell = Cell(scale.config(ROWS[row], data))
    figure = paper_figure("table1", row, f"{data}/{column}")
    return make_entry(row, scale.data[data], column, cell, Percent(scale.attacked(column)), figure)
