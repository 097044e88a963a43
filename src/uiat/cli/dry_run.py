"""`uiat train RECIPE --dry-run`: print a run's configuration and estimated cost without writing any file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from tempfile import TemporaryDirectory

import torch

from uiat import data
from uiat.bench.cost_estimate import RunCost, estimate_run
from uiat.bench.pass_count import DIRECTIONS
from uiat.cli.flags import flags_of
from uiat.config import AnyConfig
from uiat.data import Images, Splits, npz
from uiat.data.custom import is_custom
from uiat.data.fetch import DatasetNotFound
from uiat.data.images import Parts
from uiat.engine.loop import dry_build
from uiat.engine.setup import helper_config
from uiat.progress import clock_time, print_message, print_result
from uiat.runs.run_folder import RunFolder


def load_or_blank(config: AnyConfig, data_dir: str | None) -> tuple[Splits, bool]:
    """Return the images of a run, and whether they were found.

    A known data set that was not downloaded is replaced by blank images. A folder of images is decoded into a temporary
    folder.
    """
    source, present = replace(config.data, download=False), True
    users_own = source.name not in data.SOURCES and is_custom(source.name)
    with TemporaryDirectory() as scratch:
        try:
            parts = data.read_source(source, scratch if users_own else data_dir)
        except DatasetNotFound:
            known, present = data.known_size(source.name), False
            blank = [
                Images(
                    torch.zeros(n, *known.shape, dtype=torch.uint8),
                    torch.arange(n) % known.classes,
                    tuple(map(str, range(known.classes))),
                )
                for n in (known.train, known.test)
            ]
            parts = Parts(blank[0], blank[1])
        splits = data.make_splits(parts, source)
    if source.generated.file:
        splits = replace(splits, generated=npz.read_generated(source.generated.file, data_dir, splits.train))
    return splits, present


def dry_run(config: AnyConfig, run: RunFolder, data_dir: str | None, device: torch.device) -> None:
    """Print the configuration and the estimated cost of a run."""
    splits, present = load_or_blank(config, data_dir)
    dry_build(config, splits, device)
    method = config.method
    helped = method.needs_helper and not method.helper
    helper = estimate_run(replace(helper_config(config, method, run), init=""), splits, device) if helped else None
    facts = _facts(config, splits, estimate_run(config, splits, device), helper, device)
    lines = ["configuration", *_settings(config), "run", *facts, f"  folder     {run.path}, not created"]
    print_result("\n".join(lines))
    if not present:
        note = f"note: {config.data.name} is not downloaded yet: the estimate is for its full size"
        print_message(note)


def _settings(config: AnyConfig) -> Iterator[str]:
    """Yield a line for each setting, named by its flag."""
    flags = list(flags_of(config, ""))
    width = max(len(flag.name) for flag in flags)
    for flag in flags:
        yield f"  {flag.name:<{width}}  {json.dumps(flag.default, ensure_ascii=False)}"


def _facts(
    config: AnyConfig, splits: Splits, estimated: RunCost, helper: RunCost | None, device: torch.device
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
    yield f"  time       about {total}: an estimate from timed passes, with validation, for one process on {device}"


def _passes(counts: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{form.format(counts[name])} {name.replace('_', '-')}" for name in DIRECTIONS)
