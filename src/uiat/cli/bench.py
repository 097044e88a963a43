"""`uiat bench`: the cost of a training step of each method, in seconds, passes and memory."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

import torch
from rich.table import Table

from uiat import methods, models
from uiat.bench.bare_passes import bare_passes_of
from uiat.bench.cost_estimate import peak_bytes
from uiat.bench.cost_report import StepCost, draw_costs, step_costs, to_content
from uiat.bench.interleaved_timing import time_methods
from uiat.bench.pass_count import DIRECTIONS
from uiat.bench.setting import BenchSetting
from uiat.bench.timed_method import literal_references, timed_method
from uiat.cli.flags import brief, flags_of, wants_brief
from uiat.cli.options import check_counts, read_known, run_parser, take
from uiat.cli.output_paths import check_file
from uiat.config import ModelT, Training
from uiat.config_json import encode
from uiat.distributed import pick_device
from uiat.errors import UserError
from uiat.io import json_text, output_path, write_output
from uiat.methods import MethodConfig
from uiat.models import ResNet
from uiat.models.probe import try_network
from uiat.precision import Precision
from uiat.progress import PipeSafeConsole, print_message, print_result
from uiat.report.figure_style import save_figure
from uiat.runs.result_card import environment
from uiat.runs.run_folder import RunFolder
from uiat.types import DataSpec

DEFAULT_METHODS = ("natural", "sat", "trades", "mart", "hat", "iat", "uiat", "uiat-oneoff")
THREADS_PER_CORE = 8
"""Limit of --threads: more only wait for each other, and very many crash the process."""
BENCH_WIDTH = 16
"""Width of the default ResNet-18, a quarter of the paper's: some minutes on two cores."""


@dataclass(frozen=True)
class Bench(Generic[ModelT]):
    """Time a training step of each method, against its bare passes and literal reference implementations."""

    model: ModelT
    """The network."""
    methods: tuple[str, ...] = DEFAULT_METHODS
    """Methods to time: names (see `uiat list methods`), or run folders, whose method is timed with its settings."""
    batch_size: int = 32
    """m: samples per step."""
    rounds: int = 7
    """Repetitions, interleaved across methods; the fastest counts, because other load only makes steps slower."""
    size: int = 32
    """Height and width of the images (random noise)."""
    channels: int = 3
    """Channels of the images."""
    classes: int = 10
    """Number of classes."""
    samples: int = 50_000
    """Samples in the training set, which is the number of rows in the table of p."""
    references: bool = True
    """Also time literal implementations of natural training, TRADES and HAT."""
    memory: bool = True
    """Also measure the peak memory of a step over the phases of a run, in additional steps."""
    fast: bool = True
    """Use the fast path: BatchNorm folded for the attack, channels_last memory."""
    compile: bool = False
    """Use torch.compile; the seconds of the first steps, which include compilation, are reported separately."""
    precision: Precision = "fp32"
    """Precision within the network: fp32, bf16 or fp16."""
    device: str = "auto"
    """Device: cpu, cuda, cuda:1 …; auto: the GPU if there is one."""
    threads: int | None = None
    """CPU threads; else torch's default."""
    json: str | None = None
    """Write settings, costs and the times of every repetition to this file."""
    figure: str | None = None
    """Draw a bar chart to this file (.png or .svg)."""


def main(args: list[str]) -> int:
    """Run the command."""
    options = _parse(args)
    setting = _setting(options)
    try_network(options.model.build(setting.spec).to(setting.device), options.model, setting.spec)
    passes = bare_passes_of(setting)
    timed = [timed_method(name, setting, _method(name), passes) for name in options.methods]
    others = literal_references(setting) if options.references else []
    times = time_methods([*others, *timed], options.rounds, setting.device)
    peaks = {
        method.name: max(peak_bytes(phase.step, setting.device) for phase in method.phases)
        for method in (*others, *timed)
        if options.memory
    }
    costs = step_costs([*others, *timed], times, peaks)
    title = _title(options)
    _print_table(costs, title)
    facts = {"settings": encode(options), "environment": environment(setting.device)}
    if options.json is not None:
        write_output(options.json, json_text(to_content(costs, times, facts)))
    if options.figure is not None:
        save_figure(draw_costs(costs, title), output_path(options.figure))
    unfolded = [method.name for method in timed if method.state is not None and method.state.attacks_unfolded]
    if options.fast and unfolded:
        print_message(f"note: the attacks of {', '.join(unfolded)} ran unfolded: no BatchNorm can be folded")
    if options.compile:
        cold = ", ".join(f"{cost.name} {cost.first_seconds:.0f} s" for cost in costs if cost.bare_seconds is not None)
        print_result(f"first steps, with compiling: {cold}")
    if warning := times.timing_warning():
        print_result(warning)
    return 0


def _title(options: Bench[Any]) -> str:
    """Return the network and how it is run; literal references always run in fp32, not compiled."""
    how = [options.precision, *(["compiled"] if options.compile else [])]
    plain = [] if how == ["fp32"] else ["literal references in fp32, not compiled"]
    settings = [f"batch {options.batch_size}", f"{torch.get_num_threads()} threads", *how, *plain]
    width = getattr(options.model, "width", None)
    network = type(options.model).__name__ + (f" of width {width}" if width else "")
    return ", ".join([network, *settings])


def _method(name: str) -> MethodConfig:
    """Return a registered method, or the method of a run folder."""
    if name in methods.METHODS or not Path(name).is_dir():
        return methods.get_method(name)
    return read_known(RunFolder.open(name)).method


def _parse(args: list[str]) -> Bench[Any]:
    chosen, rest = take(args, ("--model",))
    model = models.get_model(chosen["--model"]) if "--model" in chosen else ResNet(width=BENCH_WIDTH)
    exact: Any = Bench[type(model)]  # type: ignore[misc]
    if wants_brief(rest):
        flags = (flag for flag in flags_of(Bench(model)) if "." not in flag.name)
        examples = ("uiat bench", "uiat bench --model resnet8 --size 8 --methods trades uiat --rounds 3")
        print(brief("uiat bench [--model NAME] [FLAGS]", str(Bench.__doc__), flags, examples))
        raise SystemExit(0)
    options: Bench[Any] = run_parser(exact, rest, "uiat bench", str(Bench.__doc__), default=Bench(model))
    for name in options.methods:
        _method(name)
    if not options.methods:
        raise UserError(f"--methods is empty: give some of {', '.join(methods.METHODS)}.")
    check_counts(options, batch_size=1, rounds=1, size=1, channels=1, classes=1, samples=1, threads=1)
    if options.threads is not None and options.threads > (most := THREADS_PER_CORE * (os.cpu_count() or 1)):
        raise UserError(f"--threads is {options.threads}: give at most {most}, {THREADS_PER_CORE} for each core.")
    if options.samples < options.batch_size:
        raise UserError(f"--samples is {options.samples}, less than a batch of {options.batch_size}: give more.")
    check_file(options.json, text=True)
    check_file(options.figure)
    if options.figure is not None and output_path(options.figure).suffix.lower() not in (".png", ".svg"):
        raise UserError(f"--figure is {options.figure}: give a name that ends in .png or .svg.")
    return options


def _setting(options: Bench[Any]) -> BenchSetting:
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    spec = DataSpec(options.classes, options.samples, (options.channels, options.size, options.size))
    train = replace(Training(), fast=options.fast, compile=options.compile, precision=options.precision)
    return BenchSetting(options.model, spec, options.batch_size, pick_device(options.device), train)


def _print_table(costs: list[StepCost], title: str) -> None:
    table = Table(
        title=title, caption="fastest round, /x: over that of x; spread: third fastest; F, B: batches", padding=(0, 0)
    )
    headings = ("", "s/step", "spread", "/bare", "/natural", "/TRADES", "/HAT", "F", "B in", "B w", "MB")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for cost in costs:
        first = cost.counts[0] if cost.counts else {}  # the passes of the first phase, which is most of a run
        ratios = [cost.over_bare, cost.to_natural, cost.to_trades, cost.to_hat]
        table.add_row(
            cost.name,
            f"{cost.seconds:.3g}",
            "" if cost.spread is None else f"+{cost.spread:.0%}",
            *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            *(f"{first[kind]:g}" if first else "" for kind in DIRECTIONS),
            "" if cost.peak_bytes is None else f"{cost.peak_bytes / 1e6:.0f}",
        )
    PipeSafeConsole().print(table)
