"""Figure 5: how much more accurate one-off UIAT is than TRADES under AutoAttack, at each ε."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from uiat.report.panels import Panel, draw_panels
from uiat.reproduce.cell import Cell, common_seeds
from uiat.reproduce.compare import paired
from uiat.reproduce.figure import Figure, Point, lines_of
from uiat.reproduce.scales import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PANEL = "UIAT (one-off) − TRADES"


def difference_cells(scale: Scale) -> tuple[Cell, Cell]:
    """Return one-off UIAT and TRADES with AutoAttack at every ε of the grid."""
    measure = scale.difference_curve()
    return Cell(scale.config("uiat-oneoff"), (measure,)), Cell(scale.config("trades"), (measure,))


def differences(scale: Scale, out: Path, seeds: int) -> Tensor | None:
    """Return the differences of verdicts, (seeds, points, examples); `None` before any pair of runs is finished."""
    measure = scale.difference_curve()
    pairs = common_seeds(difference_cells(scale), out, seeds, measure)
    verdicts = [[store.tensors(measure)["correct"].double() for store in pair] for pair in pairs]
    found = [first - second for first, second in verdicts]
    return torch.stack(found) if found else None


def build(scale: Scale) -> Figure:
    """Return the figure at a scale."""
    title = "One-off UIAT against TRADES by the attack's ε"
    notes = (f"Attack: {scale.robust}. Above 0 one-off UIAT is ahead, below TRADES.",)
    points, (one_off, trades) = partial(_points, scale), difference_cells(scale)
    cells = (one_off.labelled("UIAT (one-off)"), trades.labelled("TRADES"))
    return Figure("fig5", title, scale, cells, points, _draw, notes, "ε", "paired 95 % intervals over seeds and images")


def _points(scale: Scale, out: Path, seeds: int) -> list[Point]:
    found, grid = differences(scale, out, seeds), scale.difference_curve().grid
    if found is None:
        return []
    points = []
    for k, eps in enumerate(grid):
        d = paired(found[:, k])
        numbers = (100 * d.value, 100 * d.low, 100 * d.high)
        points.append(Point(PANEL, "difference", eps, *numbers, None, d.seeds, d.examples))
    return points


def _draw(points: list[Point], out: Path, seeds: int, title: str) -> "Picture":
    panel = Panel("", "ε", f"{PANEL} (points)", lines_of(points, PANEL), radii=True, zero=True)
    return draw_panels([panel], columns=1, title=title, width=6.0, height=3.6)
