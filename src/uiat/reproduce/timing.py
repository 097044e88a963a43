"""Timings of Tables 2 and 5: training steps of all methods of a column, benchmarked interleaved, stored by device."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from uiat.bench.cost_estimate import images_per_epoch, pace, seconds_of
from uiat.bench.interleaved_timing import as_rounds, time_methods, timing_warning
from uiat.bench.pass_count import passes_per_image, phases_of
from uiat.bench.setting import BenchSetting
from uiat.bench.timed_method import timed_method
from uiat.config import AnyConfig, Training
from uiat.config_json import encode
from uiat.data import split_sizes
from uiat.fields import optional_in_key
from uiat.io import write_json
from uiat.methods import METHODS
from uiat.precision import Precision
from uiat.reproduce.cell import held_here
from uiat.runs.result_card import environment
from uiat.runs.run_folder import read_json

FOLDER = "timing"
SHORT_SECONDS = 0.2
"""Other work on the machine may interrupt all of a shorter step: a turn then consists of several steps."""
FEWEST, MOST = 3, 7
"""Steps of such a turn, of which the fastest counts."""
CHEAP_SECONDS = 20.0
"""How long a benchmark with more than the fewest steps a turn may take."""
CPU_SECONDS = 30 * 60.0
"""A longer benchmark is skipped on a CPU."""
QUIET_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Timing:
    """A benchmark of methods on one network, with a batch size and the dimensions of a data set."""

    model: Any
    """The network's configuration."""
    data: Any
    """The configuration of the data."""
    batch_size: int
    steps: float
    """Steps of an epoch."""
    methods: tuple[str, ...]
    rounds: int
    precision: Precision = optional_in_key("fp32")
    compile: bool = optional_in_key(False)

    @property
    def train(self) -> Training:
        """The training configuration of the steps."""
        return Training(precision=self.precision, compile=self.compile)

    @property
    def name(self) -> str:
        """The kind of the network and a key of the benchmark; the same on every machine."""
        text = json.dumps(encode(self, key=True), sort_keys=True)
        return f"{type(self.model).__name__}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def file(self, out: Path, device: torch.device) -> Path:
        """Return where its result on a device is, or will be."""
        parts = re.findall(r"[A-Za-z0-9]+", show_device(environment(device)))
        return out / FOLDER / f"{'-'.join((self.name, *parts))}.json"

    def known(self, out: Path) -> Path | None:
        """Return the result that is shown: a GPU's before a CPU's, then the newest. `None` before any benchmark."""
        files = (out / FOLDER).glob(f"{self.name}-*.json")
        return max(files, key=lambda path: (not _by_cpu(path), path.stat().st_mtime_ns), default=None)

    def read(self, out: Path) -> dict[str, Any]:
        """Return the content of the result that is shown; empty before any benchmark."""
        path = self.known(out)
        return {} if path is None else read_json(path)

    def is_left(self, out: Path, device: torch.device) -> bool:
        """Whether the benchmark is to be run on the device: not on a CPU if the result of a GPU exists."""
        known = self.known(out)
        return not self.file(out, device).exists() and (known is None or device.type != "cpu" or _by_cpu(known))

    def measure(self, out: Path, device: torch.device) -> None:
        """Run the benchmark, and write the result."""
        setting = BenchSetting(self.model, split_sizes(self.data).spec, self.batch_size, device, self.train)
        timed = [timed_method(name, setting) for name in self.methods]
        trial = time_methods(timed, 1, device).steps.values()  # warms up all methods, too
        steps = steps_a_turn([step for rounds in trial for step in rounds.seconds[0]], self.rounds)
        times = time_methods(timed, self.rounds * steps, device, warm_up=0)
        path = self.file(out, device)
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = {"schema": 2, **encode(self), "environment": environment(device), "steps_a_turn": steps}
        turns = {name: rounds.turns(steps) for name, rounds in times.steps.items()}
        write_json(path, {**facts, "seconds_a_step": turns})

    def epoch_seconds(self, method: str, out: Path) -> list[float]:
        """Return the seconds of an epoch, one for each repetition; empty before the benchmark."""
        return [self.steps * seconds for seconds in self.read(out).get("seconds_a_step", {}).get(method, ())]

    def timing_warning(self, out: Path) -> str:
        """Return why the times shown are unreliable; empty if repetitions agree, or before the benchmark."""
        return timing_warning({m: as_rounds(s) for m, s in self.read(out).get("seconds_a_step", {}).items()})

    def device(self, out: Path) -> str:
        """Return the device of the times that are shown; empty before the benchmark."""
        return show_device(self.read(out).get("environment", {}))

    def estimate(self, device: torch.device) -> float:
        """Estimate the seconds that the benchmark takes on this machine."""
        speed, steps, train = pace(self.model, split_sizes(self.data).spec, device, self.precision), [], self.train
        for name in self.methods:
            passes = passes_per_image(METHODS[name], train.epochs)
            step = seconds_of(passes, speed) / train.epochs * self.batch_size
            steps += [step] * len(phases_of(METHODS[name], train))
        return sum(steps) * (2 + self.rounds * steps_a_turn(steps, self.rounds))


def show_device(environment: dict[str, Any]) -> str:
    """Format the device of a result, with the number of threads of a CPU."""
    name, threads = environment.get("device", ""), environment.get("threads")
    return f"{name}, {threads} thread{'' if threads == 1 else 's'}" if name.startswith("cpu") and threads else name


def steps_a_turn(seconds: Sequence[float], rounds: int) -> int:
    """Return the number of steps of a turn, which is odd, from the seconds of each step of a repetition."""
    if max(seconds) >= SHORT_SECONDS:
        return 1
    cheap = int(CHEAP_SECONDS / max(1e-9, rounds * sum(seconds)))
    return (min(MOST, max(FEWEST, cheap)) - 1) // 2 * 2 + 1


def _by_cpu(path: Path) -> bool:
    return "-cpu-" in path.name


def timing_of(config: AnyConfig, methods: tuple[str, ...], rounds: int) -> Timing:
    """Return the benchmark of some methods on a run's network and data."""
    train, steps = config.train, images_per_epoch(config, split_sizes(config.data).train) / config.train.batch_size
    return Timing(config.model, config.data, train.batch_size, steps, methods, rounds, train.precision, train.compile)


@dataclass(frozen=True)
class TableBenchmark:
    """A benchmark whose times a table shows, on one device."""

    table: str
    timing: Timing
    out: Path
    device: torch.device
    retime: bool = False
    """Whether to repeat it although a result exists."""

    @property
    def title(self) -> str:
        """A readable name."""
        return f"times of {self.table} on {self.timing.name}"

    @property
    def is_left(self) -> bool:
        """Whether it is still to be run."""
        return self.retime or self.timing.is_left(self.out, self.device)

    @property
    def seconds(self) -> float:
        """Estimated seconds on this machine."""
        return self.timing.estimate(self.device)

    @property
    def wants_gpu(self) -> bool:
        """Whether it would take too long on this machine's CPU."""
        return self.device.type == "cpu" and self.seconds > CPU_SECONDS

    @property
    def state(self) -> str:
        """Its state, as text; a result names its device."""
        if self.is_left:
            return "needs a GPU" if self.wants_gpu else "new"
        return self.measured

    @property
    def measured(self) -> str:
        """Name the device of the result shown."""
        return f"measured on {self.timing.read(self.out)['environment']['device']}"

    def run(self) -> None:
        """Run it, unless another command has done so meanwhile."""
        if self.is_left:
            self.timing.measure(self.out, self.device)


def wait_for_quiet(out: Path, say: Callable[[str], None]) -> None:
    """Wait while other processes of this machine work on runs in the folder, and print their names."""
    before: list[str] = []
    while names := held_here(out):
        if names != before:
            say(f"timing needs an idle machine; waiting for {len(names)} runs of other processes: {', '.join(names)}")
        before = names
        time.sleep(QUIET_POLL_SECONDS)
