"""Line plots in panels; lines differ in colour, dashes and marker, so that they can be read in grey."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uiat.report.figure_style import (
    BLUE,
    GREEN,
    GREY,
    VERMILLION,
    add_grid,
    in_levels,
    new_figure,
    radius_axis,
    show_radius,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PURPLE = "#CC79A7"
STYLES = (
    {"color": BLUE, "linestyle": "-", "marker": "o"},
    {"color": VERMILLION, "linestyle": "--", "marker": "s"},
    {"color": GREEN, "linestyle": "-.", "marker": "^"},
    {"color": PURPLE, "linestyle": ":", "marker": "D"},
)


@dataclass(frozen=True)
class PanelLine:
    """A line: points in percent, each with a confidence interval."""

    label: str
    x: Sequence[float]
    values: Sequence[float]
    intervals: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """One panel: a title, axes and lines."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[PanelLine]
    radii: bool = False
    """Whether x is ε."""
    whole: bool = False
    """Whether y goes from 0 to 100 %."""
    zero: bool = False
    """Whether y is a difference, with a reference line at 0."""
    marked: float | None = None
    """An x to mark: the paper's choice."""
    first_style: int = 0
    """Index of the first line's style: panels of different quantities use different styles."""
    gap_at: float | None = None
    """An x at which the gap between the first two lines is annotated."""


def draw_panels(
    panels: Sequence[Panel], *, columns: int, title: str, width: float = 4.0, height: float = 3.3
) -> "Figure":
    """Draw the panels, row by row, under one title and above one legend."""
    rows = -(-len(panels) // columns)
    figure = new_figure(max(4.8, width * columns), height * rows + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, cell in zip(panels, axes, strict=False):
        _draw(cell, panel)
    for cell in axes[len(panels) :]:
        cell.set_axis_off()
    figure.suptitle(title, fontsize=10, parse_math=False)
    entries: dict[str, Artist] = {}
    for cell in axes:
        handles, labels = cell.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    style: dict[str, Any] = {"ncols": min(5, 2 * columns), "frameon": False, "fontsize": 9, "handlelength": 2.8}
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", **style)
    return figure


def _draw(axes: "Axes", panel: Panel) -> None:
    if panel.zero:
        axes.axhline(0, color=VERMILLION, linewidth=1.4, linestyle="--", zorder=1, label="no difference")
    for line, style in zip(panel.lines, STYLES[panel.first_style :], strict=False):
        low, high = zip(*line.intervals, strict=True)
        axes.fill_between(line.x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        small = {"markersize": 4.5, "markevery": max(1, len(line.x) // 12), "linewidth": 1.6}
        axes.plot(line.x, line.values, label=line.label, **style, **small)  # type: ignore[arg-type]
    xs = sorted({x for line in panel.lines for x in line.x})
    axes.set_title(panel.title, fontsize=9.5, parse_math=False)
    axes.set_ylabel(panel.y_label)
    if panel.radii:
        radius_axis(axes, tuple(xs))
        axes.tick_params(axis="x", labelsize=8)
    else:
        _plain_axis(axes, xs, panel)
    if panel.whole:
        axes.set_ylim(-3, 112 if panel.gap_at is not None else 103)
        axes.set_yticks([0, 20, 40, 60, 80, 100])
    if panel.gap_at is not None and len(panel.lines) > 1:
        _gap(axes, panel, tuple(xs))


def _plain_axis(axes: "Axes", xs: list[float], panel: Panel) -> None:
    axes.set_xlabel(panel.x_label)
    if len(xs) <= 6:
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
    if panel.marked is not None:
        axes.axvline(panel.marked, color=GREY, linewidth=1.0, linestyle=":", zorder=1, label="the paper's choice")
    add_grid(axes)


def _gap(axes: "Axes", panel: Panel, grid: tuple[float, ...]) -> None:
    at = panel.gap_at
    ends = [value for line in panel.lines[:2] for x, value in zip(line.x, line.values, strict=True) if x == at]
    if at is None or len(ends) < 2:
        return
    arrow = {"arrowstyle": "<->", "color": GREY, "linewidth": 1.2, "shrinkA": 3, "shrinkB": 3}
    axes.annotate("", xy=(at, ends[1]), xytext=(at, ends[0]), arrowprops=arrow)
    text = f"gap {ends[0] - ends[1]:.1f} points\nat ε = {show_radius(at, in_levels(grid))}".replace("-", "−")
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
    late = at > grid[0] + 0.75 * (grid[-1] - grid[0])  # no room on the right, and a line comes from the left
    offset = {"xytext": (2, 3) if late else (3, 5), "textcoords": "offset points", "ha": "right" if late else "left"}
    axes.annotate(text, xy=(at, 100.0 if late else max(ends)), **offset, va="bottom", fontsize=8, bbox=box)  # type: ignore[arg-type]
