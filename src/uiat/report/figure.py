"""A blank figure, and how every figure is saved."""

from pathlib import Path
from typing import TYPE_CHECKING

from uiat.engine.files import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
"""Of Okabe and Ito's palette, which colour-blind readers can tell apart; grey for what only guides the eye."""
DPI = 160


def new_figure(width: float, height: float) -> "Figure":
    """Return a figure of so many inches, with a canvas of its own: no window, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: "Figure", *paths: Path) -> None:
    """Write a figure in the format of each path's ending; the same figure gives the same bytes."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "uiat"}):
        for path in paths:
            kind = path.suffix.removeprefix(".")
            with atomic(path) as temporary:
                figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else None)
