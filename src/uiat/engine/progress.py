"""What a person sees of a long run: epoch lines on stdout, a live bar and notes on stderr, and all lines in log.txt."""

import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from uiat.distributed import is_main
from uiat.errors import PeerLost, UserError
from uiat.io import append
from uiat.progress import QUIET_SECONDS, Live, PipeSafeConsole, clock_time


class Reporter(Live):
    """Shows a run's progress and keeps its log."""

    def __init__(self, log: Path, epochs: int, steps: int, done: int, console: Console | None = None):
        self.console = console or PipeSafeConsole(stderr=True, highlight=False, quiet=not is_main())
        self.results = console or PipeSafeConsole(highlight=False, quiet=not is_main())
        if self.results.is_terminal and self.console.is_terminal:
            self.results = self.console  # one screen: lines are printed above the bar
        self.log, self.epochs, self.steps = log, epochs, steps
        self.total, self.first, self.done = epochs * steps, done, done
        self.began = self.spoken = time.monotonic()
        if self.console.is_terminal and not _piped():
            # On a narrow terminal the note gives way, never the count or the time that is left.
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=10),
                MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=2 * len(str(self.total)) + 1)),
                TextColumn("left"),
                TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
                TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
                console=self.console,
                expand=True,
            )
            self.task = self.bar.add_task("training", total=self.total, completed=done, note="")

    def step(self, epoch: int, step: int, means: dict[str, float] | None = None) -> None:
        """Count one step; `means` are shown when they are at hand."""
        self.done += 1
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, description=f"epoch {epoch}/{self.epochs}")
            if means:
                self.bar.update(self.task, note=_values(means))
        elif time.monotonic() - self.spoken > QUIET_SECONDS:
            self.say(f"epoch {epoch}/{self.epochs}  step {step + 1}/{self.steps}  left {self.left()}")

    def say(self, line: str, *, result: bool = False) -> None:
        """Print a note on stderr or a result on stdout, above the bar if there is one, and keep it in log.txt."""
        self.spoken = time.monotonic()
        (self.results if result else self.console).print(line, markup=False, soft_wrap=True)
        self._keep(line)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the sentence with which a run ends; the command line prints it."""
        super().__exit__(kind, error, trace)
        if isinstance(error, UserError | PeerLost):
            with suppress(OSError):  # the disk may be what the sentence is about
                self._keep(f"the run stops: {error}")

    def _keep(self, line: str) -> None:
        if is_main():
            append(self.log, f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")

    def epoch(self, record: dict[str, float], best: bool) -> None:
        """Report a finished epoch."""
        means = {name: value for name, value in record.items() if name.startswith("loss")}
        self.say(
            f"epoch {record['epoch']:.0f}/{self.epochs}  {_values(means)}  "
            f"train {record['train_accuracy']:.1%}  natural {record['val_natural']:.1%}  "
            f"attacked {record['val_robust']:.1%}  left {self.left()}{'  best so far' if best else ''}",
            result=True,
        )

    def left(self) -> str:
        """Estimate the remaining time from the steps this process has made."""
        made = self.done - self.first
        if not made:
            return "?"
        return clock_time((time.monotonic() - self.began) / made * (self.total - self.done))


def _piped() -> bool:
    """Whether stdout goes to another program, such as `tee`, which may print on the screen that a bar would be on."""
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):  # no file of the system
        return False


def _values(means: dict[str, float]) -> str:
    shown = {name.removeprefix("loss_").replace("train_accuracy", "right"): value for name, value in means.items()}
    return "  ".join(f"{name} {value:.3f}" for name, value in shown.items())
