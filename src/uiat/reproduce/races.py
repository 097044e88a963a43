"""The races that tables ask for: which are left, which want a GPU, and that they wait for a quiet machine."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from uiat.reproduce.cell import held_here
from uiat.reproduce.table import Table
from uiat.reproduce.timing import Timing
from uiat.runs.folder import read_json

CPU_SECONDS = 30 * 60.0
"""A race that takes longer on a CPU is left to a GPU."""
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Race:
    """A race for a table."""

    table: str
    timing: Timing
    out: Path
    device: torch.device
    anew: bool = False
    """Whether times that are known are measured again."""

    @property
    def what(self) -> str:
        """Its name for people."""
        return f"times of {self.table} on {self.timing.name}"

    @property
    def is_left(self) -> bool:
        """Whether there is something to measure."""
        return self.anew or self.timing.is_left(self.out, self.device)

    @cached_property
    def seconds(self) -> float:
        """About how long it takes here."""
        return self.timing.estimate(self.device)

    @property
    def wants_gpu(self) -> bool:
        """Whether this machine's CPU is too slow for it."""
        return self.device.type == "cpu" and self.seconds > CPU_SECONDS

    @property
    def state(self) -> str:
        """Where it stands, in words."""
        if self.is_left:
            return "wants a GPU" if self.wants_gpu else "new"
        known = self.timing.known(self.out)
        assert known is not None
        return self.measured(known)

    @staticmethod
    def measured(known: Path) -> str:
        """Say on what a result was measured."""
        return f"measured on {read_json(known)['environment']['device']}"

    def run(self) -> None:
        """Measure."""
        self.timing.measure(self.out, self.device, anew=self.anew)


def races_of(experiments: Iterable[object], out: Path, device: torch.device, *, anew: bool = False) -> list[Race]:
    """Return the races of some tables and figures."""
    tables = [experiment for experiment in experiments if isinstance(experiment, Table)]
    return [Race(table.name, timing, out, device, anew) for table in tables for timing in table.timings]


def wait_for_quiet(out: Path, say: Callable[[str], None]) -> None:
    """Wait while other processes of this machine make runs in the folder, and say for which."""
    before: list[str] = []
    while names := held_here(out):
        if names != before:
            say(f"times want the machine alone: waiting for {len(names)} runs of other processes: {', '.join(names)}")
        before = names
        time.sleep(LOOK_SECONDS)
