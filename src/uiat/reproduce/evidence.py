"""Evidence for a claim: the paired difference over finished runs, above 0 if the claim holds."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from uiat.config import AnyConfig
from uiat.errors import UserError
from uiat.evaluation.intervals import Difference, paired, paired_times, smallest_difference
from uiat.evaluation.seed_variance import SeedVariance, estimate_seed_variance
from uiat.reproduce.cell import Cell, Store, common_seeds
from uiat.reproduce.claims import Evidence, Untestable
from uiat.reproduce.measures import Attacked, Curve, Measure, read_learning
from uiat.reproduce.timing import Timing
from uiat.rng import generator
from uiat.runs.published import readable_folder
from uiat.runs.run_folder import RunFolder

FLOOR = 0.1
"""Accuracy of a harder half below which comparisons of halves show a floor effect."""


Rows = list[list[dict[str, Tensor]]]
"""The tensors of one measurement: a row for each seed at which all runs are finished, with a place for each run."""


def from_runs(
    configs: Sequence[AnyConfig], measure: Measure, decide: Callable[[Rows, Path], Difference | None]
) -> Evidence:
    """Compare runs on the same images; `decide` gets the tensors of one measurement, and the folder."""
    cells = [Cell(config) for config in configs]

    def evidence(out: Path, seeds: int) -> Difference | None:
        rows = [[store.tensors(measure) for store in row] for row in common_seeds(cells, out, seeds, measure)]
        return decide(rows, out) if rows else None

    return evidence


def example_by_example(
    configs: Sequence[AnyConfig], measure: Measure, difference: Callable[..., Tensor], bound: float = 1.0
) -> Evidence:
    """Compare runs by a difference for each example, of shape (examples,)."""
    return from_runs(configs, measure, lambda rows, _: paired(torch.stack([difference(*row) for row in rows]), bound))


def more_accurate(first: Sequence[AnyConfig], second: Sequence[AnyConfig], measure: Attacked) -> Evidence:
    """Compare mean accuracies of two groups of runs: first's − second's.

    How much seeds differ is estimated over all runs in the folder that are measured so.
    """

    def decide(rows: Rows, out: Path) -> Difference:
        verdicts = torch.stack([torch.stack([tensors["correct"].double() for tensors in row]) for row in rows])
        values = verdicts[:, : len(first)].mean(dim=1) - verdicts[:, len(first) :].mean(dim=1)
        common = seed_variance(out, measure, first[0].data.name)
        if common is not None:  # the mean of several runs varies less than one
            common = replace(common, variance=common.variance * (1 / len(first) + 1 / len(second)) / 2)
        return paired(values, common=common)

    return from_runs((*first, *second), measure, decide)


def seed_variance(out: Path, measure: Attacked, data: str) -> SeedVariance | None:
    """Return the variance between seeds of an accuracy, over all finished runs on a data set; `None`: too few runs."""
    files = (*out.glob("runs/*"), *out.glob("runs/*/measures"))
    return _seed_variance(out, measure, data, tuple(sorted((file.name, file.stat().st_mtime_ns) for file in files)))


@lru_cache(maxsize=64)
def _seed_variance(out: Path, measure: Attacked, data: str, state: object) -> SeedVariance | None:
    """Estimate it once for a `state` of the folder."""
    groups: dict[str, dict[int, float]] = defaultdict(dict)
    for cell in _cells(out, state):
        store = Store(cell, out)
        if cell.config.data.name == data and store.trained and store.has(measure):
            groups[cell.at_seed(0).key][cell.config.seed] = float(store.tensors(measure)["correct"].double().mean())
    return estimate_seed_variance(list(groups.values()))


@lru_cache(maxsize=1)
def _cells(out: Path, state: object) -> list[Cell]:
    """Return the runs in a folder; those with learning curves, of other versions, or not readable are skipped."""
    cells = []
    for name in sorted({path.name.removesuffix(".json") for path in out.glob("runs/*")}):
        with suppress(UserError, OSError):
            cell = Cell(RunFolder(readable_folder(out / "runs" / name)).read_config())
            cells += [cell] if cell.name == name else []
    return cells


def smaller_gap(first: AnyConfig, second: AnyConfig, measure: Curve) -> Evidence:
    """Compare the gaps between the easier and the harder half of the images under attack: second's − first's."""

    def gap(tensors: dict[str, Tensor]) -> Tensor:
        """Return each example's contribution to the gap: the mean over examples is the gap."""
        return _over(tensors["easier"]) - _over(~tensors["easier"])

    return _on_halves(first, second, measure, gap, -1)


def harder_half(first: AnyConfig, second: AnyConfig, measure: Curve) -> Evidence:
    """Compare accuracies of the harder half of the images under attack: first's − second's."""
    return _on_halves(first, second, measure, lambda tensors: _over(~tensors["easier"]), 1)


def _over(half: Tensor) -> Tensor:
    """Return weights of examples with which a mean over all examples is the mean over a half of them."""
    return half.double() * (len(half) / max(1, int(half.sum())))


def _on_halves(
    first: AnyConfig, second: AnyConfig, measure: Curve, weights: Callable[[dict[str, Tensor]], Tensor], sign: int
) -> Evidence:
    """Compare weighted accuracies at the largest ε > 0 at which the harder halves of all runs are above `FLOOR`.

    Below it, differences are small because accuracies are near 0; `Untestable` if no such ε exists.
    """

    def decide(rows: Rows, _: Path) -> Difference:
        harder = torch.stack([t["correct"][:, ~t["easier"]].double().mean(dim=1) for row in rows for t in row])
        lowest = dict(zip(measure.grid, harder.amin(dim=0).tolist(), strict=True))
        testable = [eps for eps, accuracy in lowest.items() if eps > 0 and accuracy > FLOOR]
        if not testable:
            most = max(accuracy for eps, accuracy in lowest.items() if eps > 0)
            raise Untestable(f"the harder half has at most {most:.1%} at any ε > 0, less than {FLOOR:.0%}")
        point = measure.grid.index(max(testable))
        values = [[weights(t) * t["correct"][point].double() for t in row] for row in rows]
        return paired(torch.stack([sign * (ours - theirs) for ours, theirs in values]), 2.0)

    return from_runs((first, second), measure, decide)


def above_on_curve(first: AnyConfig, second: AnyConfig, measure: Measure, points: Sequence[int]) -> Evidence:
    """Compare mean accuracies over some points of a curve: first's − second's."""

    def difference(*runs: dict[str, Tensor]) -> Tensor:
        ours, theirs = (tensors["correct"][list(points)].double().mean(dim=0) for tensors in runs)
        return ours - theirs

    return example_by_example([first, second], measure, difference)


def faster(timing: Timing, first: str, second: str) -> Evidence:
    """Compare the seconds of an epoch over the repetitions of an interleaved benchmark: second's − first's."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        ours, theirs = (timing.epoch_seconds(method, out) for method in (first, second))
        return paired_times(ours, theirs) if len(ours) > 1 else None

    return evidence


def milder_overfitting(first: Cell, second: Cell) -> Evidence:
    """Compare how much robust accuracy on the test set falls from its best epoch to the last: second's − first's."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        rows = common_seeds([first, second], out, seeds)
        falls = [[fall_from_best(read_learning(store.run.path)["test robust"]) for store in row] for row in rows]
        return paired(torch.stack([theirs - ours for ours, theirs in falls]), bound=2.0) if falls else None

    return evidence


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
    return example_by_example([config], measure, lambda tensors: tensors[name].double() - 0.5, 0.5)


def lowered_in_every_class(config: AnyConfig, measure: Measure, loss: str) -> Evidence:
    """Compare the same for the class with the smallest share: it holds for most examples of every class."""

    def decide(rows: Rows, _: Path) -> Difference:
        lowered = torch.stack([tensors[f"lowered/{loss}/universal"].double() for (tensors,) in rows])
        y = rows[0][0]["y"]
        return smallest_difference([paired(lowered[:, y == label] - 0.5, bound=0.5) for label in y.unique()])

    return from_runs([config], measure, decide)
