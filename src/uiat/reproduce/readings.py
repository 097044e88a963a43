"""How a number is read from a finished cell: accuracies, times, passes."""

from dataclasses import dataclass
from statistics import mean
from typing import Protocol

from uiat.engine.run import RunFolder
from uiat.reproduce.measures import Attacked, Measure
from uiat.reproduce.store import Store


class Reading(Protocol):
    """How a number is read from a finished cell."""

    @property
    def measure(self) -> Measure | None:
        """What has to be measured for it, beside the training."""

    @property
    def digits(self) -> int:
        """Decimals that are shown."""

    def value(self, store: Store) -> float | None:
        """Return the number; `None` where it is not known yet."""


@dataclass(frozen=True)
class Percent:
    """Accuracy in percent."""

    measure: Attacked
    digits: int = 2

    def value(self, store: Store) -> float | None:
        """Read the accuracy."""
        found = store.read(self.measure)
        return None if found is None else 100 * found["accuracy"]


@dataclass(frozen=True)
class EpochTime:
    """Time of an epoch, in units of so many seconds."""

    unit: float
    digits: int = 2
    measure: Measure | None = None

    def value(self, store: Store) -> float | None:
        """Read the mean over the epochs."""
        if not store.trained:
            return None
        return mean(epoch_seconds(store.run)) / self.unit


@dataclass(frozen=True)
class EpochPasses:
    """Passes of an epoch for each training image: forwards and backwards together, counted as they happened."""

    digits: int = 1
    measure: Measure | None = None

    def value(self, store: Store) -> float | None:
        """Read the counts of the run's card."""
        if not store.trained:
            return None
        images = store.card["data"]["train"] * store.cell.config.train.epochs
        return float(sum(store.card["training_passes"].values()) / images)


def epoch_seconds(run: RunFolder) -> list[float]:
    """Return the wall-clock seconds of each epoch, its validation included: the one source of times here.

    An epoch that went on after an interruption counts the time the run was at work.
    """
    ends = [line["seconds"] for line in run.read_metrics() if line["kind"] == "epoch"]
    return [end - begin for begin, end in zip([0.0, *ends], ends, strict=False)]
