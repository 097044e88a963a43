"""Table 3: training and attacking at larger radii."""

from uiat.reproduce.cell import Cell
from uiat.reproduce.paper import paper_figure
from uiat.reproduce.readings import Percent
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Table, make_entry

LEVELS = (10, 12, 16)
ROWS = {"TRADES": "trades", "HAT": "hat", "UIAT": "uiat", "UIAT (One-off)": "uiat-oneoff"}


def build(scale: Scale) -> Table:
    """Return the table at a scale: a section for each ε."""
    entries = []
    for levels in LEVELS:
        for row, method in ROWS.items():
            cell = Cell(scale.larger(method, levels))
            for column in ("Natural", "Robust"):
                reading = Percent(scale.attacked(column))
                figure = paper_figure("table3", f"{levels}/255/{row}", column)
                section = f"ε = {scale.show_radius(levels)}"
                entries.append(make_entry(row, scale.data["CIFAR-10"], column, cell, reading, figure, section))
    notes = ("Each run is trained and attacked at its ε; α and ε' are those of the usual ε.",)
    return Table("table3", "Training at larger ε: accuracy (%)", scale, tuple(entries), notes)
