"""An axis of radii: ticks where a reader looks for them, in the unit of the field."""

from typing import TYPE_CHECKING

from uiat.report.figure import GREEN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TICKS = 9


def in_levels(values: tuple[float, ...]) -> bool:
    """Whether the values are whole pixel levels k/255, and not just decimals (0.2 is 51/255)."""
    whole = all(abs(v * 255 - round(v * 255)) < 1e-6 for v in values)
    return whole and any(abs(v - round(v, 4)) > 1e-9 for v in values)


def show_radius(value: float, levels: bool) -> str:
    """Write a radius as k/255 or as a short decimal, with a true minus sign."""
    text = f"{round(value * 255)}/255" if levels and abs(value) > 1e-9 else f"{round(value, 6):g}"
    return text.replace("-", "−")


def ticks(grid: tuple[float, ...]) -> list[float]:
    """Return every k-th value of the grid, so that few enough are left, and 0 among them where it is one."""
    spacing = -(-len(grid) // MOST_TICKS)
    zero = next((k for k, v in enumerate(grid) if v == 0), 0)
    return [v for k, v in enumerate(grid) if (k - zero) % spacing == 0]


def radius_axis(axes: "Axes", grid: tuple[float, ...]) -> None:
    """Label the x axis of ε, and mark natural images where the grid passes 0."""
    chosen, levels = ticks(grid), in_levels(grid)
    axes.set_xticks(chosen, [show_radius(v, levels) for v in chosen])
    side = " (negative: inverse perturbation)" if grid[0] < 0 else ""
    axes.set_xlabel(f"ε{side}")
    if grid[0] <= 0 <= grid[-1]:
        axes.axvline(0, color=GREEN, linewidth=1.2, linestyle=":", zorder=1, label="natural images")
    axes.grid(alpha=0.25, linewidth=0.6)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
