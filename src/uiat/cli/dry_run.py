"""`uiat train RECIPE --dry-run`: what a run would be and take, from a few trial steps; nothing is left on the disk."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from uiat import data
from uiat.bench.costs import peak_bytes
from uiat.bench.race import race
from uiat.bench.timed import KINDS, BenchSetting, counted, timed_method
from uiat.cli.flags import flags_of
from uiat.config import AnyConfig
from uiat.data import Images, Splits, npz
from uiat.data.custom import is_custom
from uiat.data.fetch import DatasetNotFound
from uiat.data.images import Parts
from uiat.engine.loop import dry_build
from uiat.engine.overfitting import is_single_step
from uiat.engine.setup import build_loader, helper_config
from uiat.engine.state import State
from uiat.progress import PipeSafeConsole, clock_time
from uiat.reproduce.budget import SETS, pace
from uiat.runs.run_folder import RunFolder

LARGE = 1_000_000
"""Parameters from which on a CPU tries steps of a few samples only, lest a dry run takes an hour itself."""
FEW = 8
"""Samples of such a step."""
Counts = dict[str, float]
WORDS = ("forward", "input-backward", "weight-backward")


@dataclass(frozen=True)
class Estimate:
    """What a run takes."""

    parameters: int
    steps: int
    """Steps of an epoch."""
    epochs: int
    phases: list[tuple[float, Counts]]
    """The share of the run that each phase is, and the passes of a step in it, in batches."""
    passes: Counts
    """Passes of single samples in the whole training, by kind."""
    memory: dict[str, int]
    """Bytes of each part."""
    rows: int
    """Samples of the trial steps."""
    seconds: float


def load(config: AnyConfig, data_dir: str | None) -> tuple[Splits, bool]:
    """Return the images of a run, and whether they are there.

    Blank ones stand in for a known data set that was not downloaded. A folder of images is decoded into a temporary
    folder.
    """
    source, present = replace(config.data, download=False), True
    users_own = source.name not in data.SOURCES and is_custom(source.name)
    with TemporaryDirectory() as scratch:
        try:
            parts = data.read_source(source, scratch if users_own else data_dir)
        except DatasetNotFound:
            train, test, classes, shape = SETS[source.name]
            present, names = False, tuple(map(str, range(classes)))
            blank = [Images(torch.zeros(n, *shape).byte(), torch.arange(n) % classes, names) for n in (train, test)]
            parts = Parts(blank[0], blank[1])
        splits = data.make_splits(parts, source)
    if source.generated.file:
        splits = replace(splits, generated=npz.read_generated(source.generated.file, data_dir, splits.train))
    return splits, present


def estimate(config: AnyConfig, splits: Splits, device: torch.device) -> Estimate:
    """Make a few steps on noise with a network of its own, and extrapolate from them."""
    plan, spec = config.train, splits.spec
    loader = build_loader(config, splits.train, torch.device("cpu"), splits.generated)
    whole = min(plan.batch_size, spec.num_samples)
    parameters = sum(p.numel() for p in config.model.build(spec).parameters())
    rows = min(whole, FEW) if device.type == "cpu" and parameters > LARGE else whole
    name = type(config.method).__name__
    timed = timed_method(name, BenchSetting(config.model, spec, rows, device, plan), config.method)
    assert timed.state is not None
    step = race([timed], 2, device, warm_up=0).steps[name].fastest
    made = [counts for counts, _ in counted(timed)]
    peak = max(peak_bytes(phase.step, device) for phase in timed.phases)
    images = len(splits.train) if splits.generated is None else loader.steps_per_epoch * plan.batch_size
    seen, phases = images * plan.epochs, list(zip((phase.share for phase in timed.phases), made, strict=True))
    passes = {kind: seen * sum(share * counts[kind] for share, counts in phases) for kind in KINDS}
    memory = {**_kept(timed.state), "a step": peak * whole // rows, "images": splits.train.x.numel()}
    seconds = seen / rows * step + plan.epochs * _validation(config, splits, device)
    return Estimate(parameters, loader.steps_per_epoch, plan.epochs, phases, passes, memory, rows, seconds)


def _kept(state: State) -> dict[str, int]:
    """Return the bytes that a run holds between its steps."""
    average = [] if state.average is None else list(state.average.weights.values())
    parts: dict[str, list[Any]] = {
        "weights": [*state.model.state_dict().values(), *average],
        "optimiser": [value for slots in state.optimizer.state.values() for value in slots.values()],
        "method": [*state.method.state_dict().values()],
    }
    return {k: sum(v.nbytes for v in values if isinstance(v, Tensor)) for k, values in parts.items()}


def _validation(config: AnyConfig, splits: Splits, device: torch.device) -> float:
    """Return the seconds of a look at the validation split, as if no attack succeeded early."""
    model: Any = config.model
    forward, backward, _ = pace(model, splits.spec, device)
    gradients = config.validate.steps + is_single_step(config.method)
    networks = 1 + config.train.averaging.enabled
    return networks * len(splits.validation) * (forward + gradients * (forward + backward))


def dry_run(config: AnyConfig, run: RunFolder, data_dir: str | None, device: torch.device) -> None:
    """Print the configuration, and what the run would take."""
    splits, present = load(config, data_dir)
    dry_build(config, splits, device)
    method = config.method
    helped = method.needs_helper and not method.helper
    helper = estimate(replace(helper_config(config, method, run), init=""), splits, device) if helped else None
    facts = _facts(config, splits, estimate(config, splits, device), helper, device)
    lines = ["configuration", *_settings(config), "run", *facts, f"  folder     {run.path}, not made"]
    PipeSafeConsole(highlight=False).print("\n".join(lines), markup=False, soft_wrap=True)
    if not present:
        note = f"note: {config.data.name} is not downloaded yet: the numbers are those of its full size"
        PipeSafeConsole(stderr=True, highlight=False).print(note, markup=False, soft_wrap=True)


def _settings(config: AnyConfig) -> Iterator[str]:
    """Yield a line for each setting, by the name of its flag."""
    flags = list(flags_of(config, ""))
    width = max(len(flag.name) for flag in flags)
    for flag in flags:
        yield f"  {flag.name:<{width}}  {json.dumps(flag.default, ensure_ascii=False)}"


def _facts(
    config: AnyConfig, splits: Splits, estimated: Estimate, helper: Estimate | None, device: torch.device
) -> Iterator[str]:
    channels, height, width = splits.spec.shape
    yield f"  network    {type(config.model).__name__}, {estimated.parameters:,} parameters"
    counts = f"{len(splits.train):,} for training, {len(splits.validation):,} for validation"
    yield f"  images     {counts}, {channels} × {height} × {width}"
    yield f"  steps      {estimated.epochs * estimated.steps:,}: {estimated.epochs} epochs of {estimated.steps:,}"
    for share, step in estimated.phases:
        part = f" ({share:.0%} of the run)" if len(estimated.phases) > 1 else ""
        yield f"  a step     {_passes(step, '{:g}')} passes of a batch{part}"
    yield f"  in all     {_passes(estimated.passes, '{:,.0f}')} passes of a sample"
    megabytes = ", ".join(f"{name} {count / 1e6:.1f}" for name, count in estimated.memory.items())
    yield f"  memory     about {sum(estimated.memory.values()) / 1e6:.1f} MB: {megabytes}"
    tool = "torch.cuda.max_memory_allocated" if device.type == "cuda" else "torch's profiler"
    scaled = f", scaled to {config.train.batch_size}" if estimated.rows < config.train.batch_size else ""
    yield f"             a step: its peak, measured by {tool} in a trial step of {estimated.rows} samples{scaled}"
    first = 0.0 if helper is None else helper.seconds
    if helper is not None:
        steps = f"{helper.epochs * helper.steps:,} steps, {_passes(helper.passes, '{:,.0f}')} passes of a sample"
        yield f"  helper     trained first: {steps}; about {clock_time(first)}"
    total = clock_time(first + estimated.seconds)
    yield f"  time       about {total}: an estimate from trial steps, with validation, for one process on {device}"


def _passes(counts: Counts, form: str) -> str:
    return ", ".join(f"{form.format(counts[kind])} {word}" for kind, word in zip(KINDS, WORDS, strict=True))
