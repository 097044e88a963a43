"""Times of Tables 2 and 5: steps of all methods of a column, interleaved in one process as `uiat bench` does."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from uiat.bench.entrants import Course, enter
from uiat.bench.race import race
from uiat.config import AnyConfig
from uiat.engine.files import write_json
from uiat.engine.run import read_json
from uiat.evaluation.card import environment
from uiat.reproduce.budget import images_per_epoch, sizes
from uiat.serialize import encode

FOLDER = "timing"


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

    def file(self, out: Path) -> Path:
        """Return where its result is, or will be."""
        text = json.dumps(encode(self), sort_keys=True)
        return out / FOLDER / f"{type(self.model).__name__}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"

    def measure(self, out: Path, device: torch.device) -> None:
        """Race, unless the result is there."""
        path = self.file(out)
        if path.exists():
            return
        course = Course(self.model, sizes(self.data).spec, self.batch_size, device)
        times = race([enter(name, course) for name in self.methods], {}, self.rounds, device)
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = {"schema": 1, **encode(self), "environment": environment(device)}
        write_json(path, {**facts, "seconds_a_step": times.steps})

    def epoch_seconds(self, method: str, out: Path) -> list[float]:
        """Return the seconds of an epoch, round by round: the one source of times here. Empty before the race."""
        path = self.file(out)
        if not path.exists():
            return []
        return [self.steps * seconds for seconds in read_json(path)["seconds_a_step"][method]]


def timing_of(config: AnyConfig, methods: tuple[str, ...], rounds: int) -> Timing:
    """Return the race of some methods on a run's network and data."""
    batch = config.train.batch_size
    return Timing(config.model, config.data, batch, images_per_epoch(config) / batch, methods, rounds)
