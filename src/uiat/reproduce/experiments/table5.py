"""Table 5: single-step methods with and without UIAT, at three radii, and their time."""

from uiat.reproduce.cell import Cell
from uiat.reproduce.paper import paper_figure
from uiat.reproduce.readings import EpochPasses, EpochTime, Percent
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Table, make_entry

LEVELS = (6, 8, 10)
PAIRS = {"N-FGSM": "n-fgsm", "RS-FGSM": "rs-fgsm", "GradAlign": "gradalign"}


def build(scale: Scale) -> Table:
    """Return the table at a scale: a section for each single-step method."""
    entries = []
    for name, method in PAIRS.items():
        for row, own in ((name, method), (f"{name} + UIAT", f"{method}-uiat")):
            for levels in LEVELS:
                cell = Cell(scale.single_step(own, levels))
                for column in ("Natural", "Robust"):
                    group, reading = f"ε = {scale.show_radius(levels)}", Percent(scale.attacked(column))
                    figure = paper_figure("table5", row, f"{levels}/255/{column}")
                    entries.append(make_entry(row, group, column, cell, reading, figure, name))
            cell, figure = Cell(scale.single_step(own, 8)), paper_figure("table5", row, "Time(s)")
            seconds = EpochTime(1.0, digits=2)
            entries.append(make_entry(row, "an epoch", "seconds", cell, seconds, figure, name, "least"))
            entries.append(make_entry(row, "an epoch", "passes an image", cell, EpochPasses(), "", name, "least"))
    notes = ("Time and passes are those of the runs at the middle ε.",)
    title = "Single-step methods with and without UIAT: accuracy (%)"
    return Table("table5", title, scale, tuple(entries), notes, name_sections=False)
