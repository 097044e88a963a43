"""Trade-off fronts: natural against robust accuracy over each method's own weight, and robust accuracy against work."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from uiat.report.panels import Panel, draw_panels
from uiat.reproduce.budget import passes_per_image
from uiat.reproduce.cell import Cell, common_seeds
from uiat.reproduce.configs import change_method
from uiat.reproduce.figure import Figure, Point, accuracy_point, lines_of
from uiat.reproduce.scales import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FRONT, WORK = "front", "work"
DEFAULTS = {"SAT": "sat", "TRADES": "trades", "UIAT": "uiat", "one-off UIAT": "uiat-oneoff"}


@dataclass(frozen=True)
class Front:
    """A method and the weight that moves it along its front."""

    line: str
    method: str
    field: str = ""

    def cells(self, scale: Scale) -> list[Cell]:
        """Return its runs; a method without a weight has one."""
        measures = (scale.attacked("Natural"), scale.attacked("Robust"))
        values = {"lam": scale.lam, "omega": scale.omega, "": (None,)}[self.field]
        configs = [
            scale.config(self.method)
            if value is None
            else change_method(scale.config(self.method), None, **{self.field: value})
            for value in values
        ]
        sign = {"lam": "λ", "omega": "ω"}.get(self.field, "")
        name = self.line.partition(" (")[0]
        labels = [name if value is None else f"{name}, {sign} = {value:g}" for value in values]
        return [Cell(config, measures).labelled(label) for config, label in zip(configs, labels, strict=True)]


FRONTS = (
    Front("SAT", "sat"),
    Front("TRADES (ω)", "trades", "omega"),
    Front("UIAT (λ)", "uiat", "lam"),
    Front("one-off UIAT (λ)", "uiat-oneoff", "lam"),
)


def build(scale: Scale) -> Figure:
    """Return the figure at a scale."""
    cells = tuple(cell for front in FRONTS for cell in front.cells(scale))
    notes = (
        f"Robust: {scale.robust}. Left: every point is a value of the method's own weight ({_values(scale)}). "
        "Right: the default weights, against forwards and backwards of the whole training for each image.",
    )
    title = "Trade-off fronts and work"
    return Figure("fronts", title, scale, cells, partial(_points, scale), _draw, notes, "natural accuracy or passes")


def _values(scale: Scale) -> str:
    lam, omega = (", ".join(f"{value:g}" for value in values) for values in (scale.lam, scale.omega))
    return f"λ {lam}; ω {omega}"


def _points(scale: Scale, out: Path, seeds: int) -> list[Point]:
    points = []
    for front in FRONTS:
        points += [point for cell in front.cells(scale) for point in _point(FRONT, front.line, cell, out, seeds)]
    for line, method in DEFAULTS.items():
        cell = Cell(scale.config(method), (scale.attacked("Natural"), scale.attacked("Robust")))
        points += _point(WORK, line, cell, out, seeds)
    return points


def _point(panel: str, line: str, cell: Cell, out: Path, seeds: int) -> list[Point]:
    """Return the point of a run over its finished seeds; none before."""
    natural, robust = cell.measures
    stores = [row[0] for row in common_seeds([cell], out, seeds, robust) if row[0].has(natural)]
    if not stores:
        return []
    x = 100 * mean(float(store.tensors(natural)["correct"].double().mean()) for store in stores)
    if panel == WORK:
        config: Any = cell.config
        x = float(sum(passes_per_image(config.method, config.train.epochs, config.train.awp)))
    return [accuracy_point(panel, line, x, [store.tensors(robust)["correct"] for store in stores])]


def _draw(points: list[Point], out: Path, seeds: int, title: str) -> "Picture":
    panels = [
        Panel("trade-off", "natural accuracy (%)", "robust accuracy (%)", lines_of(points, FRONT)),
        Panel("work", "passes of the training for each image", "robust accuracy (%)", lines_of(points, WORK)),
    ]
    return draw_panels(panels, columns=2, title=title, width=4.6)
