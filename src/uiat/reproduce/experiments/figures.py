"""Figures 1, 2, 4, 5 and S1 of the paper: accuracy against ε, learning curves, and inverse examples."""

from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from uiat.evaluation.intervals import paired
from uiat.report.figure_style import in_levels, show_radius
from uiat.report.inverse_grid import PictureRow, draw_inverses
from uiat.report.panels import Panel, draw_panels
from uiat.reproduce.cell import Cell, common_seeds, seed_stores
from uiat.reproduce.figure import Figure, PlottedPoint, accuracy_point, draw_each_panel, lines_of
from uiat.reproduce.measures import LEARNING_LINES, read_learning
from uiat.reproduce.scale import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def fig1(scale: Scale) -> Figure:
    """Return Figure 1, the easier and the harder half of the test images: natural training against SAT."""
    return _halves("fig1", scale, {"natural training": "natural", "adversarial training": "sat"})


def fig4(scale: Scale) -> Figure:
    """Return Figure 4, the same for TRADES against one-off UIAT."""
    return _halves("fig4", scale, {"TRADES": "trades", "UIAT (one-off)": "uiat-oneoff"})


def _halves(name: str, scale: Scale, panels: dict[str, str]) -> Figure:
    measure = scale.halves_curve()
    cells = {panel: Cell(scale.config(method), (measure,)) for panel, method in panels.items()}

    def points(out: Path, seeds: int) -> list[PlottedPoint]:
        plotted = []
        for panel, cell in cells.items():
            runs = [store.tensors(measure) for store in seed_stores(cell, out, seeds, measure)]
            for k, eps in enumerate(measure.grid if runs else ()):
                for line, easier in (("easier half", True), ("harder half", False)):
                    verdicts = [tensors["correct"][k][tensors["easier"] == easier] for tensors in runs]
                    plotted.append(accuracy_point(panel, line, eps, verdicts))
        return plotted

    needs = tuple(cell.labelled(panel) for panel, cell in cells.items())
    notes = (
        "PGD-20; a negative ε is the radius of an inverse perturbation.",
        "Halves are ranked by the loss on natural images.",
    )
    draw = partial(draw_each_panel, x_label="ε", gap_at=scale.eps)
    return Figure(name, "Accuracy against ε, easier and harder half", scale, needs, points, draw, notes, "ε")


def learning_cell(scale: Scale, method: str) -> Cell:
    """Return a run of twice the epochs with learning curves, with the paper's rate and weight whatever is tuned."""
    config = scale.runs(method, "CIFAR-10", "ResNet-18")
    return Cell(replace(config, train=replace(config.train, epochs=2 * config.train.epochs)), (), scale.watch)


def fig2(scale: Scale) -> Figure:
    """Return Figure 2: learning curves of SAT and one-off UIAT over doubled epochs, on train and test."""
    cells = {"PGD-AT": learning_cell(scale, "sat"), "UIAT (one-off)": learning_cell(scale, "uiat-oneoff")}

    def points(out: Path, seeds: int) -> list[PlottedPoint]:
        plotted = []
        for panel, cell in cells.items():
            runs = [read_learning(store.run.path) for store in seed_stores(cell, out, seeds)]
            places = product(range(cell.config.train.epochs if runs else 0), LEARNING_LINES)
            for epoch, line in places:
                plotted.append(accuracy_point(panel, line, epoch + 1, [run[line][epoch] for run in runs]))
        return plotted

    watch = scale.watch
    sample = f"{watch.train} images, balanced over classes, without crop or flip"
    rate = "Learning rate and weights are the paper's, not the tuned ones. " if scale.tuned else ""
    notes = (
        f"Twice the usual epochs. {rate}Robust: PGD-{watch.steps}. "
        f"Train: {'all images' if watch.train is None else sample}. "
        "Accuracies on train and test are for the report only: no epoch is chosen by them.",
    )
    needs = tuple(cell.labelled(f"{panel}, doubled epochs") for panel, cell in cells.items())
    draw = partial(draw_each_panel, x_label="epoch")
    return Figure("fig2", "Learning curves over doubled epochs", scale, needs, points, draw, notes, "epoch")


def fig5(scale: Scale) -> Figure:
    """Return Figure 5: how much more accurate one-off UIAT is than TRADES under AutoAttack, at each ε."""
    measure, panel = scale.difference_curve(), "UIAT (one-off) − TRADES"
    cells = [Cell(scale.config(method), (measure,)) for method in ("uiat-oneoff", "trades")]

    def points(out: Path, seeds: int) -> list[PlottedPoint]:
        pairs = common_seeds(cells, out, seeds, measure)
        verdicts = [[store.tensors(measure)["correct"].double() for store in pair] for pair in pairs]
        differences = [one_off - trades for one_off, trades in verdicts]
        plotted = []
        for k, eps in enumerate(measure.grid if differences else ()):
            d = paired(torch.stack([difference[k] for difference in differences]))
            numbers = (100 * d.value, 100 * d.low, 100 * d.high)
            plotted.append(PlottedPoint(panel, "difference", eps, *numbers, None, d.seeds, d.examples))
        return plotted

    def draw(points: list[PlottedPoint], out: Path, seeds: int, title: str) -> "Picture":
        only = Panel("", "ε", f"{panel} (points)", lines_of(points, panel), radii=True, zero=True)
        return draw_panels([only], columns=1, title=title, width=6.0, height=3.6)

    title = "One-off UIAT against TRADES by the attack's ε"
    notes = (f"Attack: {scale.robust}. Above 0 one-off UIAT is ahead, below TRADES.",)
    needs = (cells[0].labelled("UIAT (one-off)"), cells[1].labelled("TRADES"))
    return Figure("fig5", title, scale, needs, points, draw, notes, "ε", "paired 95 % intervals over seeds and images")


def figs1(scale: Scale) -> Figure:
    """Return Figure S1: inverse and universal inverse examples, and how often they lower the loss."""
    measure, title = scale.inverse(), "Inverse and universal inverse examples of UIAT"
    cell = Cell(scale.config("uiat"), (measure,))

    def points(out: Path, seeds: int) -> list[PlottedPoint]:
        runs = [store.tensors(measure) for store in seed_stores(cell, out, seeds, measure)]
        plotted = []
        for name in sorted(key for key in (runs[0] if runs else {}) if key.startswith("lowered/")):
            _, loss, kind = name.split("/")
            for label in runs[0]["y"].unique().tolist():
                verdicts = [tensors[name][tensors["y"] == label] for tensors in runs]
                plotted.append(accuracy_point(f"{loss} lowered", kind, label, verdicts))
        return plotted

    def draw(points: list[PlottedPoint], out: Path, seeds: int, title: str) -> "Picture":
        store = seed_stores(cell, out, seeds, measure)[0]  # the first that is finished
        facts, tensors = store.read(measure), store.tensors(measure)
        assert facts is not None
        rows = []
        for k, (label, p) in enumerate(zip(facts["labels"], facts["p"], strict=True)):
            x, x_inverse, x_universal, z = (tensors[name][k] for name in ("natural", "inverse", "universal", "z"))
            rows.append(PictureRow(label, x, x_inverse, x_universal, z, (p[0], p[1], p[2])))
        eps = facts["eps"]
        words = f"{title}; ε' = {show_radius(eps, in_levels((eps,)))}, p of the true class"
        return draw_inverses(rows, scale=eps, title=words)

    notes = (
        "Points: the share of test images of a class whose cross-entropy, or loss of Eq. 4 (l_inv), an inverse or a "
        "universal inverse perturbation lowers, with the z that the run ended with.",
    )
    return Figure("figS1", title, scale, (cell.labelled("UIAT"),), points, draw, notes, "class")
