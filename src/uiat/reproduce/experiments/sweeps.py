"""Figures 3 and S2: natural and robust accuracy while one hyper-parameter changes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from uiat.config import AnyConfig
from uiat.report.panels import Panel, draw_panels
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.configs import change_method
from uiat.reproduce.figure import Figure, Point, accuracy_point, lines_of
from uiat.reproduce.scales import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

COLUMNS = {"natural": "Natural", "robust": "Robust"}


@dataclass(frozen=True)
class Sweep:
    """A hyper-parameter and its values."""

    symbol: str
    method: str
    part: str | None
    field: str
    values: Callable[[Scale], tuple[float, ...]]
    paper: float
    """The paper's choice (A.2)."""
    unit: str = ""

    def config(self, scale: Scale, value: float) -> AnyConfig:
        """Return the run at a value."""
        return change_method(scale.config(self.method), self.part, **{self.field: value})

    def show(self, value: float) -> str:
        """Write a value for people: a fraction of the epochs in percent."""
        return f"{100 * value:g} %" if self.unit else f"{value:g}"

    def cells(self, scale: Scale) -> dict[float, Cell]:
        """Return the runs by their value."""
        measures = tuple(scale.attacked(column) for column in COLUMNS.values())
        return {value: Cell(self.config(scale, value), measures) for value in self.values(scale)}


OF_EPOCHS = " (fraction of the epochs)"
LAMBDA = Sweep("λ", "uiat-oneoff", None, "lam", lambda scale: scale.lam, 3.5)
BETA = Sweep("β", "uiat", "inverse", "beta", lambda scale: scale.beta, 1.0)
GAMMA = Sweep("γ", "uiat", "momentum", "gamma", lambda scale: scale.gamma, 0.9)
START = Sweep("T", "uiat", "momentum", "start", lambda scale: scale.start, 0.75, OF_EPOCHS)
EPOCH = Sweep("T'", "uiat-oneoff", "one_off", "epoch", lambda scale: scale.one_off, 0.8, OF_EPOCHS)


def build3(scale: Scale) -> Figure:
    """Return Figure 3: λ of one-off UIAT."""
    return _sweeps("fig3", "One-off UIAT: the trade-off by λ", scale, (LAMBDA,))


def build_s2(scale: Scale) -> Figure:
    """Return Figure S2: β, γ and T of UIAT, T' of one-off UIAT."""
    return _sweeps("figS2", "UIAT: sensitivity to β, γ, T and (one-off) T'", scale, (BETA, GAMMA, START, EPOCH))


def _sweeps(name: str, title: str, scale: Scale, sweeps: tuple[Sweep, ...]) -> Figure:
    cells = tuple(
        cell.labelled(f"{sweep.symbol} = {sweep.show(value)}")
        for sweep in sweeps
        for value, cell in sweep.cells(scale).items()
    )
    points, draw = partial(_points, scale, sweeps), partial(_draw, sweeps)
    return Figure(name, title, scale, cells, points, draw, (f"Robust: {scale.robust}.",), "setting")


def _points(scale: Scale, sweeps: tuple[Sweep, ...], out: Path, seeds: int) -> list[Point]:
    points = []
    for line, column in COLUMNS.items():
        measure = scale.attacked(column)
        for sweep in sweeps:
            for value, cell in sweep.cells(scale).items():
                found = [store.tensors(measure)["correct"] for store in seed_stores(cell, out, seeds, measure)]
                if found:
                    points.append(accuracy_point(f"{sweep.symbol}, {line}", line, value, found))
    return points


def _draw(sweeps: tuple[Sweep, ...], points: list[Point], out: Path, seeds: int, title: str) -> "Picture":
    panels = []
    for style, line in enumerate(COLUMNS):
        for sweep in sweeps:
            name, label = f"{sweep.symbol}, {line}", f"{sweep.symbol}{sweep.unit}"
            lines = lines_of(points, name)
            panels.append(Panel(name, label, "accuracy (%)", lines, marked=sweep.paper, first_style=style))
    columns = len(sweeps) if len(sweeps) > 1 else 2
    return draw_panels(panels, columns=columns, title=title, width=3.2, height=2.7)
