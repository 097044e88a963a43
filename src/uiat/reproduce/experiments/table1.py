"""Table 1: adversarial training methods on three data sets, under three attacks; best weights, and last ones."""

from uiat.reproduce.cell import Cell
from uiat.reproduce.paper import read_figures
from uiat.reproduce.readings import Percent
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Entry, Table, make_entry

ROWS = {
    "SAT": "sat",
    "TRADES": "trades",
    "MART": "mart",
    "HAT": "hat",
    "IAT": "iat",
    "UIAT": "uiat",
    "UIAT (One-off)": "uiat-oneoff",
}
"""The paper's rows, and IAT, which it has in Tables 2 and 6 only."""
COLUMNS = ("Natural", "PGD", "CW", "AA")
LAST_COLUMNS = ("Natural", "PGD")


def build(scale: Scale) -> Table:
    """Return the table at a scale: a group of columns for each data set that is measured."""
    entries = [_entry(scale, data, row, column) for row in ROWS for data in scale.data for column in COLUMNS]
    return Table("table1", "Methods compared: natural and robust accuracy (%)", scale, tuple(entries))


def build_last(scale: Scale) -> Table:
    """Return the same runs with the weights of their last epoch, which the paper does not show."""
    places = [(data, row, column) for row in ROWS for data in scale.data for column in LAST_COLUMNS]
    entries = [_entry(scale, *place, weights="last") for place in places]
    notes = ("Weights of the last epoch: what robust overfitting leaves.",)
    return Table("table1-last", "Methods compared at their last epoch: accuracy (%)", scale, tuple(entries), notes)


def _entry(scale: Scale, data: str, row: str, column: str, weights: str = "best") -> Entry:
    cell = Cell(scale.config(ROWS[row], data))
    figure = read_figures().get(("table1", row, f"{data}/{column}"), "") if weights == "best" else ""
    return make_entry(row, scale.data[data], column, cell, Percent(scale.attacked(column, weights)), figure)
