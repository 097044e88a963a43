"""Evidence for a claim: the paired difference over finished runs, above 0 if the claim holds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uiat.config import AnyConfig
from uiat.evaluation.intervals import Difference, paired, paired_times, smallest_difference
from uiat.reproduce.cell import Cell, Store, common_seeds
from uiat.reproduce.claims import Evidence
from uiat.reproduce.measures import Attacked, Curve, Measure, read_learning
from uiat.reproduce.seed_accuracies import seed_variance
from uiat.reproduce.timing import Timing
from uiat.rng import generator

FLOOR = 0.1
"""Accuracy of a harder half below which a gap between halves shows a floor effect."""


def compared(
    cells: Sequence[Cell],
    read: Callable[[Store], Any],
    difference: Callable[..., Tensor],
    measure: Measure | None = None,
    bound: float = 1.0,
) -> Evidence:
    """Compare cells at every seed at which all are finished; `difference` turns what `read` gives into (examples,)."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        rows = common_seeds(cells, out, seeds, measure)
        values = [difference(*(read(store) for store in row)) for row in rows]
        return paired(torch.stack(values), bound) if values else None

    return evidence


def measured_difference(
    configs: Sequence[AnyConfig], measure: Measure, difference: Callable[..., Tensor], bound: float = 1.0
) -> Evidence:
    """Compare runs on the same images, by the tensors of one measurement."""
    cells = [Cell(config) for config in configs]
    return compared(cells, lambda store: store.tensors(measure), difference, measure, bound)


def more_accurate(first: Sequence[AnyConfig], second: Sequence[AnyConfig], measure: Attacked) -> Evidence:
    """Compare mean accuracies of two groups of runs: first's − second's.

    How much seeds differ is estimated over all runs in the folder that are measured so.
    """
    cells = [Cell(config) for config in (*first, *second)]

    def evidence(out: Path, seeds: int) -> Difference | None:
        rows = common_seeds(cells, out, seeds, measure)
        if not rows:
            return None
        verdicts = torch.stack([torch.stack([s.tensors(measure)["correct"].double() for s in row]) for row in rows])
        values = verdicts[:, : len(first)].mean(dim=1) - verdicts[:, len(first) :].mean(dim=1)
        common = seed_variance(out, measure, first[0].data.name)
        if common is not None:  # the mean of several runs varies less than one
            common = replace(common, variance=common.variance * (1 / len(first) + 1 / len(second)) / 2)
        return paired(values, common=common)

    return evidence


def smaller_gap(first: AnyConfig, second: AnyConfig, measure: Curve) -> Evidence:
    """Compare the gaps between the easier and the harder half of the images: second's − first's.

    The point of the curve is the largest ε > 0 at which the harder halves of all runs are above `FLOOR`: below it, a
    gap is small because accuracies are near 0. There is no evidence if no such ε exists.
    """
    cells = [Cell(config) for config in (first, second)]

    def gap(tensors: dict[str, Tensor], point: int) -> Tensor:
        """Return each example's contribution to the gap: the mean over examples is the gap."""
        easier, n = tensors["easier"], len(tensors["easier"])
        weights = torch.where(easier, n / max(1, int(easier.sum())), -n / max(1, int((~easier).sum())))
        return tensors["correct"][point].double() * weights.double()

    def evidence(out: Path, seeds: int) -> Difference | None:
        rows = [[store.tensors(measure) for store in row] for row in common_seeds(cells, out, seeds, measure)]
        harder = [t["correct"][:, ~t["easier"]].double().mean(dim=1) for row in rows for t in row]
        points = [k for k in _above(torch.stack(harder)) if measure.grid[k] > 0] if rows else []
        if not points:
            return None
        point = max(points, key=lambda k: measure.grid[k])
        return paired(torch.stack([gap(theirs, point) - gap(ours, point) for ours, theirs in rows]), 2.0)

    return evidence


def _above(accuracies: Tensor) -> list[int]:
    """Return the points of curves (runs, points) at which all are above `FLOOR`."""
    return [k for k, smallest in enumerate(accuracies.amin(dim=0).tolist()) if smallest > FLOOR]


def above_on_curve(first: AnyConfig, second: AnyConfig, measure: Measure, points: Sequence[int]) -> Evidence:
    """Compare mean accuracies over some points of a curve: first's − second's."""

    def difference(*runs: dict[str, Tensor]) -> Tensor:
        ours, theirs = (tensors["correct"][list(points)].double().mean(dim=0) for tensors in runs)
        return ours - theirs

    return measured_difference([first, second], measure, difference)


def faster(timing: Timing, first: str, second: str) -> Evidence:
    """Compare the seconds of an epoch over the repetitions of an interleaved benchmark: second's − first's."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        ours, theirs = (timing.epoch_seconds(method, out) for method in (first, second))
        return paired_times(ours, theirs) if len(ours) > 1 else None

    return evidence


def milder_overfitting(first: Cell, second: Cell) -> Evidence:
    """Compare how much robust accuracy on the test set falls from its best epoch to the last: second's − first's."""

    def fall(store: Store) -> Tensor:
        return fall_from_best(read_learning(store.run.path)["test robust"])

    return compared([first, second], fall, lambda ours, theirs: theirs - ours, bound=2.0)


def fall_from_best(epochs: list[Tensor]) -> Tensor:
    """Return each image's contribution to the fall from the best epoch, chosen on the other half of the images.

    Chosen on the images it is measured on, the best of many epochs would be overestimated, and more so for a run
    that goes up and down.
    """
    verdicts = torch.stack(epochs).double()
    order = torch.randperm(verdicts.shape[1], generator=generator(0, "halves"))
    fall = torch.empty_like(verdicts[0])
    for half, others in ((order[0::2], order[1::2]), (order[1::2], order[0::2])):
        best = int(verdicts[:, others].sum(dim=1).argmax())
        fall[half] = verdicts[best, half] - verdicts[-1, half]
    return fall


def lowered_for_most(config: AnyConfig, measure: Measure, loss: str) -> Evidence:
    """Compare with one half the share of images whose loss a universal inverse perturbation lowers."""
    name = f"lowered/{loss}/universal"
    return measured_difference([config], measure, lambda tensors: tensors[name].double() - 0.5, 0.5)


def lowered_in_every_class(config: AnyConfig, measure: Measure, loss: str) -> Evidence:
    """Compare the same for the class with the smallest share: it holds for most examples of every class."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        runs = [store.tensors(measure) for (store,) in common_seeds([Cell(config)], out, seeds, measure)]
        if not runs:
            return None
        lowered, y = torch.stack([tensors[f"lowered/{loss}/universal"].double() for tensors in runs]), runs[0]["y"]
        return smallest_difference([paired(lowered[:, y == label] - 0.5, bound=0.5) for label in y.unique()])

    return evidence
