"""Times of Tables 2 and 5: steps of all methods of a column, interleaved in one process as `uiat bench` does."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from uiat.bench.entrants import BenchSetting, enter
from uiat.bench.race import race
from uiat.bench.rounds import as_rounds, doubt
from uiat.config import AnyConfig, encode
from uiat.io import write_json
from uiat.methods import METHODS
from uiat.reproduce.budget import images_per_epoch, pace, passes_per_image, sizes
from uiat.runs.card import environment
from uiat.runs.folder import read_json

FOLDER = "timing"
SHORT_SECONDS = 0.2
"""A hiccup of the machine can be longer than a step this short: a turn is then the fastest of several steps."""
FEWEST, MOST = 3, 7
"""Steps of such a turn."""
CHEAP_SECONDS = 20.0
"""How long a race may take with more steps a turn than the fewest."""
_EPOCHS = 100
"""As in `uiat bench`: a race averages over the phases of a run of so many epochs."""


@dataclass(frozen=True)
class Timing:
    """A race of methods on one network, with a batch and a data set's dimensions."""

    model: Any
    """The network's configuration."""
    data: Any
    """The data's."""
    batch_size: int
    steps: float
    """Steps of an epoch."""
    methods: tuple[str, ...]
    rounds: int

    @property
    def name(self) -> str:
        """The network's kind, and a key of all that is raced; the same on every machine."""
        text = json.dumps(encode(self, key=True), sort_keys=True)
        return f"{type(self.model).__name__}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def file(self, out: Path, device: torch.device) -> Path:
        """Return where its result on a device is, or will be."""
        words = re.findall(r"[A-Za-z0-9]+", device_name(device))
        return out / FOLDER / f"{'-'.join((self.name, *words))}.json"

    def known(self, out: Path) -> Path | None:
        """Return the result that is shown: a GPU's before a CPU's, then the newest. `None` before any race."""
        found = (out / FOLDER).glob(f"{self.name}-*.json")
        return max(found, key=lambda path: (not _by_cpu(path), path.stat().st_mtime_ns), default=None)

    def is_left(self, out: Path, device: torch.device) -> bool:
        """Whether a race on the device has something to add: a CPU's has not where a GPU's is known."""
        known = self.known(out)
        return not self.file(out, device).exists() and (known is None or device.type != "cpu" or _by_cpu(known))

    def measure(self, out: Path, device: torch.device, *, anew: bool = False) -> None:
        """Race, unless the result is there."""
        if not anew and not self.is_left(out, device):
            return
        course = BenchSetting(self.model, sizes(self.data).spec, self.batch_size, device)
        entrants = [enter(name, course) for name in self.methods]
        trial = race(entrants, 1, device).steps.values()  # warms everybody up, too
        steps = steps_a_turn([step for each in trial for step in each.seconds[0]], self.rounds)
        times = race(entrants, self.rounds * steps, device, warm_up=0)
        path = self.file(out, device)
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = {"schema": 2, **encode(self), "environment": environment(device), "steps_a_turn": steps}
        turns = {name: found.turns(steps) for name, found in times.steps.items()}
        write_json(path, {**facts, "seconds_a_step": turns})

    def epoch_seconds(self, method: str, out: Path) -> list[float]:
        """Return the seconds of an epoch, round by round: the one source of times here. Empty before the race."""
        path = self.known(out)
        return [] if path is None else [self.steps * seconds for seconds in read_json(path)["seconds_a_step"][method]]

    def doubt(self, out: Path) -> str:
        """Say why the times that are shown cannot be trusted; empty if their rounds agree, or before the race."""
        path = self.known(out)
        return "" if path is None else doubt({m: as_rounds(s) for m, s in read_json(path)["seconds_a_step"].items()})

    def device(self, out: Path) -> str:
        """Return what the times that are shown were taken on; empty before the race."""
        path = self.known(out)
        return "" if path is None else show_device(read_json(path).get("environment", {}))

    def estimate(self, device: torch.device) -> float:
        """Return about how many seconds the race takes on this machine."""
        speed, steps = pace(self.model, sizes(self.data).spec, device), []
        for name in self.methods:
            method: Any = METHODS[name]
            step = speed.of(passes_per_image(method, _EPOCHS)) / _EPOCHS * self.batch_size
            steps += [step] * (1 if method.one_off is None else 3)  # before T', at it, after it
        return sum(steps) * (2 + self.rounds * steps_a_turn(steps, self.rounds))


def show_device(environment: dict[str, Any]) -> str:
    """Write the device of a result, and how many threads a CPU had."""
    name, threads = environment.get("device", ""), environment.get("threads")
    return f"{name}, {threads} thread{'' if threads == 1 else 's'}" if name.startswith("cpu") and threads else name


def steps_a_turn(seconds: Sequence[float], rounds: int) -> int:
    """Return how many steps a turn takes, an odd number, by the seconds of each step of a round."""
    if max(seconds) >= SHORT_SECONDS:
        return 1
    cheap = int(CHEAP_SECONDS / max(1e-9, rounds * sum(seconds)))
    return (min(MOST, max(FEWEST, cheap)) - 1) // 2 * 2 + 1


def device_name(device: torch.device) -> str:
    """Return what times belong to: a GPU by its name, a CPU by its kind and threads."""
    return show_device(environment(device))


def _by_cpu(path: Path) -> bool:
    return "-cpu-" in path.name


def timing_of(config: AnyConfig, methods: tuple[str, ...], rounds: int) -> Timing:
    """Return the race of some methods on a run's network and data."""
    batch = config.train.batch_size
    return Timing(config.model, config.data, batch, images_per_epoch(config) / batch, methods, rounds)
