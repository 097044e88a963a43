"""Figure 2: learning curves of SAT and one-off UIAT over doubled epochs, on train and test."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from uiat.report.panels import Panel, draw_panels
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.figure import Figure, Point, accuracy_point, lines_of
from uiat.reproduce.learning import LINES, read_learning
from uiat.reproduce.scales import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PANELS = {"PGD-AT": "sat", "UIAT (one-off)": "uiat-oneoff"}


def learning_cell(scale: Scale, method: str) -> Cell:
    """Return a run of twice the epochs that is watched after each."""
    config = scale.config(method)
    return Cell(replace(config, train=replace(config.train, epochs=2 * config.train.epochs)), (), scale.watch)


def build(scale: Scale) -> Figure:
    """Return the figure at a scale."""
    cells = {panel: learning_cell(scale, method) for panel, method in PANELS.items()}
    watch = scale.watch
    train = (
        "all images" if watch.train is None else f"{watch.train} images, balanced over classes, without crop or flip"
    )
    notes = (
        f"Twice the usual epochs. Robust: PGD-{watch.steps}. Train: {train}. Accuracies on train and test are for the "
        "report only: no epoch is chosen by them.",
    )
    title = "Learning curves over doubled epochs"
    needs = tuple(cell.labelled(f"{panel}, doubled epochs") for panel, cell in cells.items())
    return Figure("fig2", title, scale, needs, partial(_points, cells), _draw, notes, "epoch")


def _points(cells: dict[str, Cell], out: Path, seeds: int) -> list[Point]:
    points = []
    for panel, cell in cells.items():
        found = [read_learning(store.path) for store in seed_stores(cell, out, seeds)]
        for epoch in range(cell.config.train.epochs if found else 0):
            verdicts = {line: [lines[line][epoch] for lines in found] for line in LINES}
            points += [accuracy_point(panel, line, epoch + 1, each) for line, each in verdicts.items()]
    return points


def _draw(points: list[Point], out: Path, seeds: int, title: str) -> "Picture":
    panels = [
        Panel(name, "epoch", "accuracy (%)", lines_of(points, name), whole=True)
        for name in dict.fromkeys(point.panel for point in points)
    ]
    return draw_panels(panels, columns=len(panels), title=title, width=4.6)
