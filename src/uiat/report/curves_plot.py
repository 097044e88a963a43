"""Accuracy against ε as lines (Figures 1 and 4), and the difference of two networks (Figure 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uiat.report.axis import in_levels, radius_axis, show_radius
from uiat.report.figure import BLUE, GREY, VERMILLION, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Line:
    """Values with their 95 % intervals, one for each ε."""

    label: str
    values: Sequence[float]
    intervals: Sequence[tuple[float, float]]


STYLES = (
    {"color": BLUE, "linestyle": "-", "marker": "o"},
    {"color": VERMILLION, "linestyle": "--", "marker": "s"},
)
"""Two lines that differ in colour, in dashes and in markers."""


def draw_curves(grid: tuple[float, ...], easier: Line, harder: Line, *, gap_at: float, title: str) -> "Figure":
    """Draw both halves, and the gap between them at the radius `gap_at` if the grid has it."""
    figure = new_figure(6.4, 4.2)
    axes = figure.add_subplot()
    for line, style in zip((easier, harder), STYLES, strict=True):
        _draw_line(axes, grid, line, style)
    _accuracy_axis(axes)
    radius_axis(axes, grid)
    if gap_at in grid:
        place = grid.index(gap_at)
        _draw_gap(axes, grid, gap_at, (easier.values[place], harder.values[place]))
    _finish(figure, axes, title)
    return figure


def draw_difference(grid: tuple[float, ...], line: Line, *, title: str) -> "Figure":
    """Draw a difference of accuracies with a reference line at 0."""
    figure = new_figure(6.4, 3.6)
    axes = figure.add_subplot()
    axes.axhline(0, color=VERMILLION, linewidth=1.4, linestyle="--", zorder=1, label="no difference")
    _draw_line(axes, grid, line, STYLES[0])
    radius_axis(axes, grid)
    from matplotlib.ticker import FuncFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:+.3g}".replace("-", "−") if v else "0"))
    axes.set_ylabel("difference of accuracies (points)")
    _finish(figure, axes, title)
    return figure


def _draw_line(axes: "Axes", grid: tuple[float, ...], line: Line, style: dict[str, str]) -> None:
    low, high = zip(*line.intervals, strict=True)
    axes.fill_between(grid, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(
        grid,
        line.values,
        color=style["color"],
        linestyle=style["linestyle"],
        marker=style["marker"],
        markersize=4.5,
        linewidth=1.8,
        label=line.label,
    )


def _draw_gap(axes: "Axes", grid: tuple[float, ...], at: float, ends: tuple[float, float]) -> None:
    axes.annotate(
        "",
        xy=(at, ends[1]),
        xytext=(at, ends[0]),
        arrowprops={"arrowstyle": "<->", "color": GREY, "linewidth": 1.2, "shrinkA": 3, "shrinkB": 3},
    )
    points = f"{100 * (ends[0] - ends[1]):.1f}".replace("-", "−")
    late = at > grid[0] + 0.75 * (grid[-1] - grid[0])  # no room on its right, and a line comes from its left
    axes.annotate(
        f"gap {points} points\nat ε = {show_radius(at, in_levels(grid))}",
        xy=(at, 1.0 if late else max(ends)),
        xytext=(2, 8),
        textcoords="offset points",
        fontsize=9,
        ha="right" if late else "left",
        va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )


def _accuracy_axis(axes: "Axes") -> None:
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_ylim(-0.02, 1.18)  # room for the gap's words above a line at 100 %
    axes.set_ylabel("accuracy")


def _finish(figure: "Figure", axes: "Axes", title: str) -> None:
    axes.set_title(title, fontsize=10, parse_math=False)
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=4)  # where no line can be beneath it
