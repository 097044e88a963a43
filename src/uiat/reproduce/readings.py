"""How a number is read: accuracies from finished cells, times from a race, passes from the configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from uiat.reproduce.budget import passes_per_image
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.measures import Attacked, Measure
from uiat.reproduce.timing import Timing


class Reading(Protocol):
    """How a number is read."""

    @property
    def measure(self) -> Measure | None:
        """What has to be measured on the cell for it, beside the training."""

    @property
    def digits(self) -> int:
        """Decimals that are shown."""

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Return a number for each seed that is known; a single one for times."""


@dataclass(frozen=True)
class Percent:
    """Accuracy in percent."""

    measure: Attacked
    digits: int = 2

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Read the accuracy of each finished seed."""
        if cell is None:
            return []
        found = [store.read(self.measure) for store in seed_stores(cell, out, seeds, self.measure)]
        return [100 * facts["accuracy"] for facts in found if facts is not None]


@dataclass(frozen=True)
class EpochTime:
    """Time of an epoch in the fastest round, in units of so many seconds."""

    timing: Timing
    method: str
    unit: float
    digits: int = 2
    measure: Measure | None = None

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Read the fastest round: other work on the machine makes others slower, and none faster."""
        rounds = self.timing.epoch_seconds(self.method, out)
        return [min(rounds) / self.unit] if rounds else []


@dataclass(frozen=True)
class EpochPasses:
    """Passes of an epoch for each training image: forwards and backwards together, exact."""

    config: Any
    digits: int = 1
    measure: Measure | None = None

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Count them."""
        epochs = self.config.train.epochs
        return [sum(passes_per_image(self.config.method, epochs)) / epochs]
