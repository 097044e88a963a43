"""Table 2: time of a training epoch, and the passes that it is made of, for three networks."""

from uiat.reproduce.cell import Cell
from uiat.reproduce.paper import paper_figure
from uiat.reproduce.readings import EpochPasses, EpochTime
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Table, make_entry

ROWS = {
    "Natural Training": "natural",
    "TRADES": "trades",
    "HAT": "hat",
    "IAT": "iat",
    "UIAT": "uiat",
    "UIAT (One-off)": "uiat-oneoff",
}
MINUTE = EpochTime(60.0, digits=3)


def build(scale: Scale) -> Table:
    """Return the table at a scale."""
    entries = []
    for row, method in ROWS.items():
        for network, ours in scale.networks.items():
            cell, figure = Cell(scale.timed(method, network)), paper_figure("table2", row, network)
            entries.append(make_entry(row, "minutes an epoch", ours, cell, MINUTE, figure, best="least"))
        cell = Cell(scale.timed(method, "ResNet-18"))
        entries.append(
            make_entry(row, "passes an image", scale.networks["ResNet-18"], cell, EpochPasses(), best="least")
        )
    notes = (
        "Minutes are wall-clock over all epochs, validation included, of runs that may have shared the machine: passes "
        "(forward, backward to the input, backward to the weights, each 1) are exact. HAT's helper is not counted.",
    )
    return Table("table2", "Time of a training epoch", scale, tuple(entries), notes)
