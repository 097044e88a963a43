"""How far long work is: a live bar on a terminal, plain lines elsewhere, with the time that is left."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from uiat.distributed import is_main

QUIET_SECONDS = 30.0
"""How often a plain line says how far it is."""


class PipeSafeConsole(Console):
    """A console whose reader may go away (`… | head`): the work goes on in silence."""

    def on_broken_pipe(self) -> None:
        """Say no more, instead of ending the program."""
        self.quiet = True


def clock_time(seconds: float) -> str:
    """Write a duration as h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


class Live:
    """Shows a bar, if there is one, for as long as the work lasts."""

    bar: Progress | None = None

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()


class Ticker(Live):
    """Counts work against its total."""

    def __init__(self, total: float, label: str, console: Console | None = None):
        self.console = console or PipeSafeConsole(stderr=True, highlight=False, quiet=not is_main())
        self.total, self.label, self.done, self.counted = total, label, 0.0, 0.0
        self.began = self.spoken = time.monotonic()
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.task = self.bar.add_task(label, total=total)

    def advance(self, work: float, label: str = "", *, free: bool = False) -> None:
        """Count work as done; `free` work took no time (it was skipped, or done before) and is left out of the pace."""
        self.done += work
        self.counted += 0 if free else work
        self.label = label or self.label
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, description=self.label)
        elif time.monotonic() - self.spoken > QUIET_SECONDS:
            self.spoken = time.monotonic()
            self.console.print(
                f"{self.label}: {self.done / max(self.total, 1e-9):.0%}, left {self.left()}", markup=False
            )

    def left(self) -> str:
        """Estimate the remaining time from the pace so far."""
        if not self.counted:
            return "?"
        return clock_time((time.monotonic() - self.began) / self.counted * max(0.0, self.total - self.done))
