"""Progress of long work: a progress bar on a terminal, occasional lines elsewhere, with the remaining time."""

import errno
import os
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

from uiat.distributed import is_main
from uiat.errors import PeerLost, UserError
from uiat.escaping import printable
from uiat.io import WriteError, append

QUIET_SECONDS = 30.0
"""Seconds between progress lines where there is no bar."""


class PipeSafeConsole(Console):
    """A console that prints text literally, escapes control characters, and is silent once its reader has gone."""

    def __init__(self, **options: Any):
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def print_line(self, text: str) -> None:
        """Print text on one line, however long it is."""
        self.print(text, soft_wrap=True)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape control characters before layout, such as in the cells of a table."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape control characters in everything else, except those that rich itself sends."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Print no more, instead of ending the program."""
        self.quiet = True

    def _check_buffer(self) -> None:  # rich handles only a closed pipe
        try:
            super()._check_buffer()
        except OSError as error:
            if error.errno != errno.EIO:  # a full disk
                raise WriteError(Path(getattr(self.file, "name", "the output")), error) from None
            self.on_broken_pipe()


def print_message(line: str) -> None:
    """Print a message on stderr."""
    PipeSafeConsole(stderr=True).print_line(line)


def print_result(line: str) -> None:
    """Print a result on stdout."""
    PipeSafeConsole().print_line(line)


def clock_time(seconds: float) -> str:
    """Return a duration as h:mm:ss."""
    whole = int(seconds) if isfinite(seconds) else 0
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


class Live:
    """A context manager that shows a progress bar, if there is one, and estimates the remaining time."""

    bar: Progress | None = None

    def __init__(self, total: float, done: float = 0.0):
        self.total, self.done, self.counted = total, done, 0.0
        self.began = self.spoken = time.monotonic()

    def left(self) -> str:
        """Estimate the remaining time from the pace of this process."""
        if not self.counted:
            return "?"
        return clock_time((time.monotonic() - self.began) / self.counted * max(0.0, self.total - self.done))

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.bar is not None:
            self.bar.stop()


class Ticker(Live):
    """Progress of work whose total is known."""

    def __init__(self, total: float, label: str):
        super().__init__(total)
        self.console = PipeSafeConsole(stderr=True, quiet=not is_main())
        self.label = label
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.task = self.bar.add_task(label, total=total)

    def advance(self, work: float, label: str = "", *, free: bool = False) -> None:
        """Count work as done; `free` work took no time (it was skipped, or done before) and not part of the pace."""
        self.done += work
        self.counted += 0 if free else work
        self.label = label or self.label
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, description=self.label)
        elif time.monotonic() - self.spoken > QUIET_SECONDS:
            self.spoken = time.monotonic()
            self.console.print(f"{self.label}: {self.done / max(self.total, 1e-9):.0%}, left {self.left()}")


class Reporter(Live):
    """Progress and log of a training run."""

    def __init__(self, log: Path, epochs: int, steps: int, done: int, console: PipeSafeConsole | None = None):
        super().__init__(epochs * steps, done)
        self.console = console or PipeSafeConsole(stderr=True, quiet=not is_main())
        self.results = console or PipeSafeConsole(quiet=not is_main())
        if self.results.is_terminal and self.console.is_terminal:
            self.results = self.console  # one screen: lines are printed above the bar
        self.log, self.epochs, self.steps = log, epochs, steps
        if self.console.is_terminal and not _piped():
            # On a narrow terminal, the note is cut, never the count or the remaining time.
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
        """Count one step, and show mean losses if given."""
        self.done, self.counted = self.done + 1, self.counted + 1
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, description=f"epoch {epoch}/{self.epochs}")
            if means:
                self.bar.update(self.task, note=_values(means))
        elif time.monotonic() - self.spoken > QUIET_SECONDS:
            self.say(f"epoch {epoch}/{self.epochs}  step {step + 1}/{self.steps}  left {self.left()}")

    def say(self, line: str, *, result: bool = False) -> None:
        """Print a note on stderr or a result on stdout, and append it to log.txt."""
        self.spoken = time.monotonic()
        (self.results if result else self.console).print_line(line)
        self._append(line)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Append the error that ends a run to log.txt; the command line prints it."""
        super().__exit__(kind, error, trace)
        if isinstance(error, UserError | PeerLost):
            with suppress(OSError):  # the error may be about a full disk
                self._append(f"the run stops: {error}")

    def _append(self, line: str) -> None:
        if is_main():
            append(self.log, f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {printable(line)}\n")

    def epoch(self, record: dict[str, float], best: bool) -> None:
        """Report a finished epoch."""
        means = {name: value for name, value in record.items() if name.startswith("loss")}
        self.say(
            f"epoch {record['epoch']:.0f}/{self.epochs}  {_values(means)}  "
            f"train {record['train_accuracy']:.1%}  natural {record['val_natural']:.1%}  "
            f"attacked {record['val_robust']:.1%}  left {self.left()}{'  best so far' if best else ''}",
            result=True,
        )


def _piped() -> bool:
    """Whether stdout is a pipe to another program, such as `tee`, whose output would overwrite the bar."""
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):  # stdout is not a file
        return False


def _values(means: dict[str, float]) -> str:
    shown = {name.removeprefix("loss_").replace("train_accuracy", "right"): value for name, value in means.items()}
    return "  ".join(f"{name} {value:.3f}" for name, value in shown.items())
