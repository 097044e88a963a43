"""Estimated cost of a training run before it starts: passes, seconds and memory.

Passes are counted (`uiat.bench.pass_count`); seconds are these passes at the speed of bare passes on this machine.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from uiat.bench.bare_passes import bare_passes_of
from uiat.bench.interleaved_timing import bare_seconds
from uiat.bench.pass_count import DIRECTIONS, Passes, passes_per_image
from uiat.bench.setting import BenchSetting
from uiat.bench.timed_method import timed_method
from uiat.config import AnyConfig, Training
from uiat.data import Splits
from uiat.engine.overfitting import is_single_step
from uiat.engine.state import State
from uiat.precision import Precision
from uiat.types import DataSpec

LARGE = 1_000_000
"""Number of parameters from which a trial step on a CPU has a few samples only: a whole batch could take minutes."""
TRIAL_ROWS = 8
"""Samples of such a step."""

Pace = tuple[float, float, float]
"""Seconds of a pass for one image: forward, backward to the input, backward to the weights."""


@dataclass(frozen=True)
class RunCost:
    """Estimated cost of a run."""

    parameters: int
    steps: int
    """Steps of an epoch."""
    epochs: int
    phases: list[tuple[float, dict[str, float]]]
    """For each phase its share of the run, and the passes of a step in it, in batches."""
    passes: dict[str, float]
    """Passes of single samples in the whole training, by direction."""
    memory: dict[str, int]
    """Bytes of each part."""
    rows: int
    """Samples of the trial steps whose memory was measured."""
    seconds: float
    """Seconds of training and validation on one process."""


def estimate_run(config: AnyConfig, splits: Splits, device: torch.device) -> RunCost:
    """Estimate the cost of a run; memory is measured in trial steps on noise, with a network that is then dropped."""
    plan, spec = config.train, splits.spec
    seen = images_per_epoch(config, len(splits.train))
    steps = steps_per_epoch(len(splits.train), plan.batch_size)
    parameters = sum(p.numel() for p in config.model.build(spec).parameters())
    batch_size = min(plan.batch_size, spec.num_samples)
    rows = min(batch_size, TRIAL_ROWS) if device.type == "cpu" and parameters > LARGE else batch_size
    setting = BenchSetting(config.model, spec, rows, device, plan)
    timed = timed_method(type(config.method).__name__, setting, config.method)
    assert timed.state is not None
    timed.phases[0].step()  # allocates the optimiser's buffers, which are not part of a step's peak
    peak = max(peak_bytes(phase.step, device) for phase in timed.phases)
    memory = {**_kept_bytes(timed.state), "a step": peak * batch_size // rows, "images": splits.train.x.numel()}
    phases = [(phase.share, dict(phase.counts)) for phase in timed.phases]
    total = seen * plan.epochs
    passes = {name: total * sum(share * counts[name] for share, counts in phases) for name in DIRECTIONS}
    seconds = training_seconds(config, tuple(passes.values()), len(splits.validation), spec, device)
    return RunCost(parameters, steps, plan.epochs, phases, passes, memory, rows, seconds)


def steps_per_epoch(train: int, batch_size: int) -> int:
    """Return the number of batches in an epoch; a last batch of a single image is skipped."""
    full, left = divmod(train, batch_size)
    return max(1, full + (left > 1))


def images_per_epoch(config: AnyConfig, train: int) -> int:
    """Return how many images an epoch sees; with generated images all of its batches are full."""
    batch_size = config.train.batch_size
    return steps_per_epoch(train, batch_size) * batch_size if config.data.generated.file else train


def training_passes(config: AnyConfig, images: int) -> Passes:
    """Return the passes of a training with so many images in an epoch; those of a helper's run are not included."""
    train = config.train
    forward, inputs, weights = passes_per_image(config.method, train.epochs, train.awp)
    return images * forward, images * inputs, images * weights


def training_seconds(
    config: AnyConfig, passes: Sequence[float], validation: int, spec: DataSpec, device: torch.device
) -> float:
    """Estimate the seconds of a training with so many passes, and of validating on so many images after each epoch.

    Validation is counted as if no attack succeeded early.
    """
    model: Any = config.model
    training = seconds_of(passes, pace(model, spec, device, config.train.precision))
    forward, backward, _ = pace(model, spec, device)  # evaluation runs in float32
    gradients = config.validate.steps + is_single_step(config.method)
    networks = 1 + config.train.averaging.enabled
    return training + config.train.epochs * networks * validation * (forward + gradients * (forward + backward))


def seconds_of(passes: Sequence[float], speed: Pace) -> float:
    """Return the seconds of so many passes."""
    return sum(count * seconds for count, seconds in zip(passes, speed, strict=True))


@cache
def pace(model: Any, spec: DataSpec, device: torch.device, precision: Precision = "fp32") -> Pace:
    """Time the bare passes of a network on this machine, with a small batch."""
    small = sum(parameter.numel() for parameter in model.build(spec).parameters()) < LARGE
    rows = 32 if small else 4 if device.type == "cpu" else 128
    passes = bare_passes_of(BenchSetting(model, spec, rows, device, Training(precision=precision)))
    forward, gradient, update = (
        min(bare_seconds(passes, {kind: 1}, device) for _ in range(3)) / rows
        for kind in ("craft_forward", "craft_gradient", "update")
    )
    return forward, max(0.0, gradient - forward), max(0.0, update - forward)


def _kept_bytes(state: State) -> dict[str, int]:
    """Return the bytes that a run holds between its steps."""
    average = [] if state.average is None else list(state.average.weights.values())
    parts: dict[str, list[Any]] = {
        "weights": [*state.model.state_dict().values(), *average],
        "optimiser": [value for slots in state.optimizer.state.values() for value in slots.values()],
        "method": [*state.method.state_dict().values()],
    }
    return {k: sum(v.nbytes for v in values if isinstance(v, Tensor)) for k, values in parts.items()}


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Return the peak memory of a call, in addition to what was allocated before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _silence(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    inner: Any = recorded.profiler
    events = [event for event in inner.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress the profiler's messages, which bypass Python's stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
