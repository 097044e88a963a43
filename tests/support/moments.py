"""Acting at a chosen moment: the n-th call of a function.

The moments of a run are calls of public functions: a step, a line of metrics, a file that takes its place. A test that
kills goes through `at_call` with one of these, and knows nothing else of the code.

`python -m tests.support.moments ARGS…` runs the command line; rank DIE_RANK kills itself before its step DIE_STEP,
unless torchrun has started it again.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from uiat.cli import main
from uiat.distributed import restarted

STEP = "uiat.engine.loop.train_step"
LINE = "uiat.engine.loop.append_metrics"
RENAME = "os.replace"
"""Every file of a run takes its place with a rename: best, last, table, checkpoint, result."""


class Killed(BaseException):
    """Simulates SIGKILL in this process: nothing in the package catches it."""


def kill() -> None:
    """Kill this process: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def terminate() -> None:
    """Send SIGTERM to this process, as a scheduler does."""
    os.kill(os.getpid(), signal.SIGTERM)


def die() -> None:
    """Raise `Killed`, which ends the command but not this process."""
    raise Killed


@contextmanager
def at_call(target: str, number: int, act: Callable[[], None], *, before: bool = False) -> Iterator[list[int]]:
    """Within it, `act` runs right after (or before) the call of this number, from 1; yields the count of calls."""
    calls = [0]
    with pytest.MonkeyPatch.context() as patch:
        module, name = target.rsplit(".", 1)
        original: Callable[..., Any] = getattr(__import__(module, fromlist=[name]), name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if before and calls[0] == number:
                act()
            result = original(*args, **kwargs)
            if not before and calls[0] == number:
                act()
            return result

        patch.setattr(target, counted)
        yield calls


def main_with_pause(args: list[str], target: str, number: int, ready: Path, go: Path) -> int:
    """Run a command that makes the file `ready` after a call within it, and waits for `go`; return its exit code."""

    def pause() -> None:
        ready.touch()
        while not go.exists():
            time.sleep(0.01)

    with at_call(target, number, pause):
        return main(args)


if __name__ == "__main__":
    dies = os.environ["RANK"] == os.environ["DIE_RANK"] and not restarted()
    with at_call(STEP, int(os.environ["DIE_STEP"]), kill, before=True) if dies else nullcontext():
        sys.exit(main())
