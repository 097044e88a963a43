"""Figures 1 and 4: accuracy against ε for the easier and the harder half of the test images."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from uiat.report.panels import Panel, draw_panels
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.figure import Figure, Point, accuracy_point, lines_of
from uiat.reproduce.scales import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

HALVES = {"easier half": True, "harder half": False}


def build(scale: Scale) -> Figure:
    """Return Figure 1: natural training against SAT."""
    return _halves("fig1", scale, {"natural training": "natural", "adversarial training": "sat"})


def build4(scale: Scale) -> Figure:
    """Return Figure 4: TRADES against one-off UIAT."""
    return _halves("fig4", scale, {"TRADES": "trades", "UIAT (one-off)": "uiat-oneoff"})


def halves_cell(scale: Scale, method: str) -> Cell:
    """Return the run and the curve of one panel."""
    return Cell(scale.config(method), (scale.halves_curve(),))


def _halves(name: str, scale: Scale, panels: dict[str, str]) -> Figure:
    cells = {panel: halves_cell(scale, method) for panel, method in panels.items()}
    return Figure(
        name,
        "Accuracy against ε, easier and harder half",
        scale,
        tuple(cell.labelled(panel) for panel, cell in cells.items()),
        partial(_points, cells),
        partial(_draw, scale),
        (
            "PGD-20; a negative ε is the radius of an inverse perturbation.",
            "Halves are ranked by the loss on natural images.",
        ),
        x_name="ε",
    )


def _points(cells: dict[str, Cell], out: Path, seeds: int) -> list[Point]:
    points = []
    for panel, cell in cells.items():
        (measure,) = cell.measures
        found = [store.tensors(measure) for store in seed_stores(cell, out, seeds, measure)]
        for k, eps in enumerate(measure.grid if found else ()):  # type: ignore[attr-defined]
            for line, easier in HALVES.items():
                verdicts = [t["correct"][k][t["easier"] == easier] for t in found]
                points.append(accuracy_point(panel, line, eps, verdicts))
    return points


def _draw(scale: Scale, points: list[Point], out: Path, seeds: int, title: str) -> "Picture":
    panels = [
        Panel(name, "ε", "accuracy (%)", lines_of(points, name), radii=True, whole=True, gap_at=scale.eps)
        for name in dict.fromkeys(point.panel for point in points)
    ]
    return draw_panels(panels, columns=len(panels), title=title, width=4.6)
