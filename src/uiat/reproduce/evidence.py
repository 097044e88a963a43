"""Evidence that is no accuracy: times of epochs, robust overfitting, and losses that inverse perturbations lower."""

from pathlib import Path

import torch
from torch import Tensor

from uiat.config import AnyConfig
from uiat.reproduce.cell import Cell
from uiat.reproduce.claims import Evidence
from uiat.reproduce.compare import Difference, paired, paired_times
from uiat.reproduce.learning import read_learning
from uiat.reproduce.measures import Measure
from uiat.reproduce.store import common_seeds
from uiat.reproduce.timing import Timing


def faster(timing: Timing, first: str, second: str) -> Evidence:
    """Compare the seconds of an epoch, round by round of an interleaved race: second's − first's."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        mine, other = (timing.epoch_seconds(method, out) for method in (first, second))
        return paired_times(mine, other) if mine else None

    return evidence


def milder_overfitting(first: Cell, second: Cell) -> Evidence:
    """Compare how much robust accuracy on the test set falls from its best epoch to the last: second's − first's."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        rows = common_seeds([first, second], out, seeds)
        falls = [[_fall(read_learning(store.path)["test robust"]) for store in row] for row in rows]
        return paired(torch.stack([other - mine for mine, other in falls])) if rows else None

    return evidence


def _fall(epochs: list[Tensor]) -> Tensor:
    best = max(epochs, key=lambda verdicts: int(verdicts.sum()))
    return best.double() - epochs[-1].double()


def lowered_for_most(config: AnyConfig, measure: Measure, loss: str, kind: str) -> Evidence:
    """Compare the share of images whose loss is lowered with one half."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        rows = common_seeds([Cell(config)], out, seeds, measure)
        shares = [store.tensors(measure)[f"lowered/{loss}/{kind}"].double() - 0.5 for (store,) in rows]
        return paired(torch.stack(shares)) if rows else None

    return evidence


def lowered_in_most_classes(config: AnyConfig, measure: Measure, loss: str, kind: str) -> Evidence:
    """The same for the class with the smallest share: it holds for most examples of every class."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        rows = common_seeds([Cell(config)], out, seeds, measure)
        if not rows:
            return None
        found = [store.tensors(measure) for (store,) in rows]
        lowered = torch.stack([tensors[f"lowered/{loss}/{kind}"].double() for tensors in found])
        y = found[0]["y"]
        least = min(y.unique().tolist(), key=lambda label: float(lowered[:, y == label].mean()))
        return paired(lowered[:, y == least] - 0.5)

    return evidence
