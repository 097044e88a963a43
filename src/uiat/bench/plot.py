"""The picture of a benchmark: what a step of each method costs, against literal TRADES and its own bare passes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uiat.bench.summary import Line
from uiat.report.figure import BLUE, GREY, VERMILLION, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_bench(found: Sequence[Line], title: str) -> "Figure":
    """Return horizontal bars, literal references hatched; a mark shows what the bare passes alone would take."""
    unit = next((line.seconds for line in found if line.name == "literal trades"), found[0].seconds)
    figure = new_figure(6.4, 0.9 + 0.32 * len(found))
    axes = figure.add_subplot()
    places = range(len(found))
    for place, line in zip(places, found, strict=True):
        literal = line.bare_seconds is None
        height = (line.to_trades or line.seconds / unit) if not literal else line.seconds / unit
        look = {"color": "white", "edgecolor": GREY, "hatch": "///"} if literal else {"color": BLUE}
        axes.barh(place, height, height=0.62, **look)  # type: ignore[arg-type]
        axes.text(height + 0.015, place, f"{height:.2f}", va="center", fontsize=8)
        if line.over_bare is not None:
            mark = height / line.over_bare
            axes.plot([mark, mark], [place - 0.36, place + 0.36], color=VERMILLION, linewidth=1.8)
    axes.plot([], [], color=VERMILLION, linewidth=1.8, label="its bare passes")
    axes.set_yticks(list(places), [line.name for line in found])
    axes.invert_yaxis()
    axes.set_xlabel("seconds of a step, literal TRADES = 1")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
    return figure
