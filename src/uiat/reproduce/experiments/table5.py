"""Table 5: single-step methods with and without UIAT, at three radii, and their time."""

from uiat.reproduce.cell import Cell
from uiat.reproduce.paper import paper_figure
from uiat.reproduce.readings import EpochPasses, EpochTime, Percent
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Table, make_entry
from uiat.reproduce.timing import Timing, timing_of

LEVELS = (6, 8, 10)
WEIGHTS = "last"
"""Those of the best epoch would hide catastrophic overfitting, which the paper's RS-FGSM at 10/255 shows."""
PAIRS = {"N-FGSM": "n-fgsm", "RS-FGSM": "rs-fgsm", "GradAlign": "gradalign"}


def timing(scale: Scale) -> Timing:
    """Return the race of the six methods."""
    names = tuple(own for method in PAIRS.values() for own in (method, f"{method}-uiat"))
    return timing_of(scale.single_step("n-fgsm", 8), names, scale.rounds)


def build(scale: Scale) -> Table:
    """Return the table at a scale: a section for each single-step method."""
    race, entries = timing(scale), []
    for name, method in PAIRS.items():
        for row, own in ((name, method), (f"{name} + UIAT", f"{method}-uiat")):
            for levels in LEVELS:
                cell = Cell(scale.single_step(own, levels))
                for column in ("Natural", "Robust"):
                    group, reading = f"ε = {scale.show_radius(levels)}", Percent(scale.attacked(column, WEIGHTS))
                    figure = paper_figure("table5", row, f"{levels}/255/{column}")
                    entries.append(make_entry(row, group, column, cell, reading, figure, name))
            seconds, figure = EpochTime(race, own, 1.0), paper_figure("table5", row, "Time(s)")
            passes = EpochPasses(scale.single_step(own, 8))
            entries.append(make_entry(row, "an epoch", "seconds", None, seconds, figure, name, "least"))
            entries.append(make_entry(row, "an epoch", "passes an image", None, passes, "", name, "least"))
    last = "Weights of the last epoch, so that catastrophic overfitting shows."
    notes = (
        last,
        f"Seconds: steps of all methods, interleaved in one process, {scale.rounds} rounds (± is over these).",
    )
    title = "Single-step methods with and without UIAT: accuracy (%)"
    return Table("table5", title, scale, tuple(entries), notes, timings=(race,), name_sections=False)
