"""`uiat watch RUN`: progress of a run in the terminal while it trains."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from uiat.cli.options import parse_options
from uiat.errors import UserError
from uiat.progress import PipeSafeConsole, clock_time
from uiat.report.page.runs import Run, read_runs

LEVELS = "▁▂▃▄▅▆▇█"
BAR = 60
"""Characters of the progress bar."""
SHOWN = {"val_natural": "natural", "val_robust": "attacked", "train_accuracy": "training", "loss": "loss"}

EXAMPLES = ("uiat watch runs/mine", "uiat watch runs/mine --once")


@dataclass(frozen=True)
class WatchOptions:
    """Show the progress, learning curves and last checkpoint of a run; Ctrl-C ends this command, not the run."""

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder."""
    every: float = 2.0
    """Seconds between updates."""
    once: bool = False
    """Print once and exit."""


def main(args: list[str]) -> int:
    """Run the command."""
    options = parse_options(WatchOptions, args, "uiat watch RUN", EXAMPLES)
    if not 0.1 <= options.every <= 3600:
        raise UserError(f"--every is {options.every}: give 0.1 to 3600 seconds.")
    (run, *others) = read_runs([options.run])
    if others:
        raise UserError(f"{options.run} has {1 + len(others)} runs: give one of them.")
    console = PipeSafeConsole()
    if options.once or not console.is_terminal:
        console.print(render_run(run, console.width))
        return 0
    with Live(render_run(run, console.width), console=console, auto_refresh=False) as live:
        while run.state == "training" and not console.quiet:
            time.sleep(options.every)
            (run,) = read_runs([options.run])
            live.update(render_run(run, console.width), refresh=True)
    return 0


def render_run(run: Run, width: int) -> Group:
    """Return the progress of a run, rendered for the terminal."""
    total = run.config.train.epochs
    steps = [line for line in run.steps if line["epoch"] > len(run.epochs)]
    per_epoch = max((int(line["step"]) for line in run.steps), default=0)
    done = len(run.epochs) + (steps[-1]["step"] / per_epoch if steps and len(run.epochs) and per_epoch else 0)
    seconds = run.epochs[-1].get("seconds", 0) / len(run.epochs) if run.epochs else 0
    left = f", about {clock_time(seconds * (total - done))} left" if run.state == "training" and seconds else ""
    title = Text.assemble((run.name, "bold"), f"  {run.method} on {run.data_name}: {run.progress or 'finished'}{left}")
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, label in SHOWN.items():
        values = [float(line[name]) for line in run.epochs if name in line]
        if values:
            last = f"{values[-1]:.3f}" if name == "loss" else f"{values[-1]:.1%}"
            table.add_row(label, last, sparkline(values, max(10, width - 30), 0.0 if name == "loss" else 1.0))
    filled = round(BAR * done / total)
    lines: list[Text | Table] = [title, Text("━" * filled + "─" * (BAR - filled))]
    lines += [table] if run.epochs else [Text("no epoch has finished yet")]
    best = max(run.epochs, key=lambda line: line[f"val_{run.config.train.select}"], default=None)
    if best is not None:
        accuracies = f"{best['val_natural']:.1%} natural, {best['val_robust']:.1%} attacked"
        lines.append(Text(f"best epoch {best['epoch']}: {accuracies}"))
    return Group(*lines, Text(_checkpoint(run.folder.checkpoint)))


def sparkline(values: list[float], width: int, top: float) -> str:
    """Return values as a line of blocks, scaled from 0 to `top` or to the largest; the last ones if not all fit."""
    most = top or max(values) or 1.0
    return "".join(LEVELS[int(min(7, max(0, 8 * value / most)))] for value in values[-width:])


def _checkpoint(path: Path) -> str:
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:
        return "no checkpoint yet"
    return f"last checkpoint: {clock_time(age)} ago ({path})"
