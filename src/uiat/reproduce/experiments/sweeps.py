"""Figures 3 and S2, natural and robust accuracy while one hyper-parameter changes; and trade-off fronts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from uiat.bench.pass_count import passes_per_image
from uiat.config import AnyConfig
from uiat.recipes.variants import change_method
from uiat.report.panels import Panel, draw_panels
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.figure import Figure, PlottedPoint, accuracy_point, lines_of
from uiat.reproduce.scale import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

SWEEP_COLUMNS = {"natural": "Natural", "robust": "Robust"}
OF_EPOCHS = " (fraction of the epochs)"


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

    def cells(self, scale: Scale) -> dict[float, Cell]:
        """Return the runs by their value, with the measurements of both columns, and the value as their label."""
        measures = tuple(scale.attacked(column) for column in SWEEP_COLUMNS.values())
        by_value = {}
        for value in self.values(scale):
            words = f"{100 * value:g} %" if self.unit else f"{value:g}"  # a fraction of the epochs in percent
            by_value[value] = Cell(self.config(scale, value), measures).labelled(f"{self.symbol} = {words}")
        return by_value


LAMBDA = Sweep("λ", "uiat-oneoff", None, "lam", lambda scale: scale.lam, 3.5)
BETA = Sweep("β", "uiat", "inverse", "beta", lambda scale: scale.beta, 1.0)
GAMMA = Sweep("γ", "uiat", "momentum", "gamma", lambda scale: scale.gamma, 0.9)
START = Sweep("T", "uiat", "momentum", "start", lambda scale: scale.start, 0.75, OF_EPOCHS)
EPOCH = Sweep("T'", "uiat-oneoff", "one_off", "epoch", lambda scale: scale.one_off, 0.8, OF_EPOCHS)


def fig3(scale: Scale) -> Figure:
    """Return Figure 3: λ of one-off UIAT."""
    return _sweeps("fig3", "One-off UIAT: the trade-off by λ", scale, (LAMBDA,))


def figs2(scale: Scale) -> Figure:
    """Return Figure S2: β, γ and T of UIAT, T' of one-off UIAT."""
    return _sweeps("figS2", "UIAT: sensitivity to β, γ, T and (one-off) T'", scale, (BETA, GAMMA, START, EPOCH))


def _sweeps(name: str, title: str, scale: Scale, sweeps: tuple[Sweep, ...]) -> Figure:
    cells = {sweep: sweep.cells(scale) for sweep in sweeps}

    def points(out: Path, seeds: int) -> list[PlottedPoint]:
        plotted = []
        for line, column in SWEEP_COLUMNS.items():
            measure = scale.attacked(column)
            for sweep in sweeps:
                for value, cell in cells[sweep].items():
                    verdicts = [store.tensors(measure)["correct"] for store in seed_stores(cell, out, seeds, measure)]
                    if verdicts:
                        plotted.append(accuracy_point(f"{sweep.symbol}, {line}", line, value, verdicts))
        return plotted

    def draw(points: list[PlottedPoint], out: Path, seeds: int, title: str) -> "Picture":
        panels = []
        for style, line in enumerate(SWEEP_COLUMNS):
            for sweep in sweeps:
                panel, label = f"{sweep.symbol}, {line}", f"{sweep.symbol}{sweep.unit}"
                lines = lines_of(points, panel)
                panels.append(Panel(panel, label, "accuracy (%)", lines, marked=sweep.paper, first_style=style))
        return draw_panels(panels, columns=max(2, len(sweeps)), title=title, width=3.2, height=2.7)

    needs = tuple(cell for runs in cells.values() for cell in runs.values())
    return Figure(name, title, scale, needs, points, draw, (f"Robust: {scale.robust}.",), "setting")


FRONT, WORK = "front", "work"
FRONTS = {
    "SAT (ε)": ("sat", "eps"),
    "TRADES (ω)": ("trades", "omega"),
    "MART (β)": ("mart", "beta"),
    "HAT (β)": ("hat", "beta"),
    "IAT (λ)": ("iat", "lam"),
    "UIAT (λ)": ("uiat", "lam"),
    "one-off UIAT (λ)": ("uiat-oneoff", "lam"),
}
"""The lines of the front: a method, and what moves it along its front: its weight, or the radius of training."""
SINGLE_STEP_LINES = {"N-FGSM": "n-fgsm", "N-FGSM + UIAT": "n-fgsm-uiat"}
"""Single-step methods, which are compared by their cost alone."""

FRONT_COLUMNS = ("Natural", "Robust", "PGD")
"""What is measured on each; the figure shows the first two, and all images under PGD tell smaller differences."""


def front_cells(scale: Scale, line: str) -> list[Cell]:
    """Return the runs of a line of the front."""
    method, field = FRONTS[line]
    name, _, sign = line.rstrip(")").partition(" (")
    values = scale.fronts.get(method, ())
    if field == "eps":
        runs = {f"{name} trained at ε = {scale.show_radius(n)}": trained_at(scale, method, n) for n in values}
    else:
        config = scale.config(method)
        runs = {f"{name}, {sign} = {value:g}": change_method(config, None, **{field: value}) for value in values}
    measures = tuple(scale.attacked(column) for column in FRONT_COLUMNS)
    return [Cell(run, measures).labelled(label) for label, run in runs.items()]


def trained_at(scale: Scale, method: str, levels: float) -> AnyConfig:
    """Return a run that is trained at another radius, and validated and measured at the usual one."""
    config = scale.larger(method, levels)
    usual = scale.config(method)
    return usual if config == usual else replace(config, validate=replace(config.validate, eps=scale.eps))


def fronts(scale: Scale) -> Figure:
    """Return natural against robust accuracy along each method's own front, and robust accuracy against passes."""
    cells = {line: front_cells(scale, line) for line in FRONTS}
    measures = tuple(scale.attacked(column) for column in FRONT_COLUMNS)
    defaults = {line.partition(" (")[0]: Cell(scale.config(method), measures) for line, (method, _) in FRONTS.items()}
    defaults |= {name: Cell(scale.single_step(method, 8), measures) for name, method in SINGLE_STEP_LINES.items()}

    def points(out: Path, seeds: int) -> list[PlottedPoint]:
        places = [(FRONT, line, cell) for line, runs in cells.items() for cell in runs]
        places += [(WORK, line, cell) for line, cell in defaults.items()]
        return [point for place in places for point in _front_point(*place, out, seeds)]

    def draw(points: list[PlottedPoint], out: Path, seeds: int, title: str) -> "Picture":
        robust, passes = "robust accuracy (%)", "passes of the training for each image"
        panels = [
            Panel("trade-off", "natural accuracy (%)", robust, lines_of(points, FRONT)),
            Panel("work", passes, robust, lines_of(points, WORK)),
        ]
        return draw_panels(panels, columns=2, title=title, width=4.6)

    values = "; ".join(
        f"{line}: {', '.join(scale.show_radius(v) if field == 'eps' else f'{v:g}' for v in scale.fronts[method])}"
        for line, (method, field) in FRONTS.items()
        if method in scale.fronts
    )
    notes = (
        f"Robust: {scale.robust}. Left: every point is a value of the method's own weight or, for SAT, of the ε it is "
        f"trained at, all attacked at {scale.show_radius(8)} ({values}). "
        "Right: the defaults, against forwards and backwards of the whole training for each image.",
    )
    needs = tuple(cell for runs in cells.values() for cell in runs)
    title = "Trade-off fronts and work"
    return Figure("fronts", title, scale, needs, points, draw, notes, "natural accuracy or passes")


def _front_point(panel: str, line: str, cell: Cell, out: Path, seeds: int) -> list[PlottedPoint]:
    """Return the point of a run over its finished seeds; none before."""
    natural, robust, _ = cell.measures
    stores = [store for store in seed_stores(cell, out, seeds, robust) if store.has(natural)]
    if not stores:
        return []
    x, config = 100 * mean(float(store.tensors(natural)["correct"].double().mean()) for store in stores), cell.config
    if panel == WORK:
        x = float(sum(passes_per_image(config.method, config.train.epochs, config.train.awp)))
    return [accuracy_point(panel, line, x, [store.tensors(robust)["correct"] for store in stores])]
