"""Evidence that is no accuracy: times of epochs, robust overfitting, and losses that inverse perturbations lower."""

from pathlib import Path

import torch
from torch import Tensor

from uiat.config import AnyConfig
from uiat.reproduce.cell import Cell, common_seeds
from uiat.reproduce.claims import Evidence
from uiat.reproduce.compare import Difference, least, paired, paired_times
from uiat.reproduce.learning import read_learning
from uiat.reproduce.measures import Measure
from uiat.reproduce.timing import Timing
from uiat.rng import generator


def faster(timing: Timing, first: str, second: str) -> Evidence:
    """Compare the seconds of an epoch, round by round of an interleaved race: second's − first's."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        mine, other = (timing.epoch_seconds(method, out) for method in (first, second))
        return paired_times(mine, other) if len(mine) > 1 else None

    return evidence


def milder_overfitting(first: Cell, second: Cell) -> Evidence:
    """Compare how much robust accuracy on the test set falls from its best epoch to the last: second's − first's."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        rows = common_seeds([first, second], out, seeds)
        falls = [[_fall(read_learning(store.path)["test robust"]) for store in row] for row in rows]
        return paired(torch.stack([other - mine for mine, other in falls]), bound=2.0) if rows else None

    return evidence


def _fall(epochs: list[Tensor]) -> Tensor:
    """Return what each image adds to the fall from the best epoch, which is picked on the other half of the images.

    Picked on the images it is measured on, the best of many epochs would look better than it is, and more so for a run
    that goes up and down.
    """
    verdicts = torch.stack(epochs).double()
    order = torch.randperm(verdicts.shape[1], generator=generator(0, "halves"))
    fall = torch.empty_like(verdicts[0])
    for half, others in ((order[0::2], order[1::2]), (order[1::2], order[0::2])):
        best = int(verdicts[:, others].sum(dim=1).argmax())
        fall[half] = verdicts[best, half] - verdicts[-1, half]
    return fall


def lowered_for_most(config: AnyConfig, measure: Measure, loss: str, kind: str) -> Evidence:
    """Compare the share of images whose loss is lowered with one half."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        found = _lowered(config, measure, f"lowered/{loss}/{kind}", out, seeds)
        return paired(found[0] - 0.5, bound=0.5) if found else None

    return evidence


def lowered_in_every_class(config: AnyConfig, measure: Measure, loss: str, kind: str) -> Evidence:
    """The same for the class with the smallest share: it holds for most examples of every class."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        found = _lowered(config, measure, f"lowered/{loss}/{kind}", out, seeds)
        if not found:
            return None
        lowered, y = found
        return least([paired(lowered[:, y == label] - 0.5, bound=0.5) for label in y.unique()])

    return evidence


def _lowered(config: AnyConfig, measure: Measure, name: str, out: Path, seeds: int) -> tuple[Tensor, Tensor] | None:
    """Return (seeds, images) verdicts and the classes of the images; `None` before a run is finished."""
    found = [store.tensors(measure) for (store,) in common_seeds([Cell(config)], out, seeds, measure)]
    return (torch.stack([tensors[name].double() for tensors in found]), found[0]["y"]) if found else None
