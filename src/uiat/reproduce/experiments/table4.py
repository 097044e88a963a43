"""Table 4: training with a million generated images, two networks, two data sets."""

from uiat.reproduce.cell import Cell
from uiat.reproduce.paper import paper_figure
from uiat.reproduce.readings import Percent
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Entry, Table, make_entry

DATA = ("CIFAR-10", "CIFAR-100")
NETWORKS = ("PRN-18", "WRN-28-10")
ROWS = {"Rebuffi et al.": "trades", "HAT": "hat", "UIAT": "uiat", "UIAT (One-off)": "uiat-oneoff"}
FOOTNOTE = "HAT's figure for CIFAR-100 with WRN-28-10 is the one that HAT's own authors give for WRN-34-10."


def table4_cells(scale: Scale) -> list[Entry]:
    """Return the places of the table."""
    entries = []
    for data in DATA:
        for network in NETWORKS:
            for row, method in ROWS.items():
                config = scale.generated(method, data, network)
                cell = None if config is None else Cell(config)
                ours = (data, network) if config is None else (scale.data[data], scale.generated_networks[network])
                section = ", ".join(ours)
                for column in ("Natural", "Robust"):
                    figure = paper_figure("table4", f"{data}/{network}/{row}", column)
                    reading = Percent(scale.attacked(column))
                    entries.append(make_entry(row, "", column, cell, reading, figure, section))
    return entries


def build(scale: Scale) -> Table:
    """Return the table at a scale."""
    notes = [FOOTNOTE]
    if scale.name == "smoke":
        notes.append("No generated digits: training images, shifted and with noise, stand in for them.")
    title = "Training with generated data: accuracy (%)"
    return Table("table4", title, scale, tuple(table4_cells(scale)), tuple(notes))
