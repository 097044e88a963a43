"""Ending a process at a chosen moment: the n-th call of a function.

The moments of a run are calls of public functions: a step, a line of metrics, a file that takes its place. A test that
kills goes through `at_call` with one of these, and knows nothing else of the code.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STEP = "uiat.engine.loop.train_step"
LINE = "uiat.engine.loop.append_metrics"
RENAME = "os.replace"
"""Every file of a run takes its place with a rename: best, last, table, checkpoint, result."""


class Killed(BaseException):
    """Stands in for SIGKILL within the process of the tests: nothing in the package catches it."""


def kill() -> None:
    """End this process as the system would: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def die() -> None:
    """End what runs here, but not this process."""
    raise Killed


@contextmanager
def at_call(target: str, number: int, act: Callable[[], None], *, before: bool = False) -> Iterator[list[int]]:
    """Within it, `act` runs right after (or before) the call of this number, from 1; yields the count of calls."""
    calls = [0]
    with pytest.MonkeyPatch.context() as patch:
        original: Callable[..., Any] = _resolve(target)

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


def _resolve(target: str) -> Any:
    module, name = target.rsplit(".", 1)
    return getattr(__import__(module, fromlist=[name]), name)
