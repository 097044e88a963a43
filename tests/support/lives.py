"""The lives of a run between two deaths, counted, and its end, compared."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs import End, Warm, train
from tests.support.states import differences, final_state
from uiat.runs.run_folder import RunFolder

TIMES = {"restarted": "processes started again", "went on": "the first new step saved"}
"""Seconds after a kill."""
LARGEST = 37_000
"""Bytes of a checkpoint: a death within a write falls anywhere up to there."""
COUNTED = {
    "kills": "processes ended by SIGKILL",
    "cut": "processes ended within a write",
    "resumes": "resumes",
    "restarts": "processes of `uiat train --processes 2` started again within 30 seconds",
    "damaged": "damaged files met",
    "refused": "writes refused by a full disk",
    "runs": "runs and evaluations brought to their end",
    "equal": "of these, in the state of an unbroken one",
    "lost": "runs lost",
}


class Tally:
    """Counts for one test; the report carries them to the process that prints."""

    def __init__(self, node: pytest.Item):
        self.node = node

    def add(self, name: str, count: int = 1) -> None:
        assert name in COUNTED
        self.node.user_properties.append((name, count))

    def time(self, name: str, seconds: float) -> None:
        assert name in TIMES
        self.node.user_properties.append((name, seconds))


class Unbroken:
    """Runs that nobody kills, each made once."""

    def __init__(self, warm: Warm, folder: Path):
        self.warm, self.folder = warm, folder
        self.get = cache(self._get)

    def _get(self, method: str, saving: str, world: int = 1) -> tuple[dict[str, Any], float]:
        path = self.folder / f"{method}-{saving}-{world}"
        end = self.warm.run(train(method, saving, path), world=world)
        assert end.finished, end.words
        return final_state(RunFolder.open(path)), end.seconds


def folders(parent: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        yield parent / f"run{number}"


def count(end: End, tally: Tally) -> None:
    """Note how a life ended; an end that is neither a death nor a success loses the run, and all must end."""
    assert end.stuck == 0, end.words
    tally.add("kills", int(end.killed))
    tally.add("cut", int(end.cut))
    if not (end.finished or end.killed or end.cut):
        tally.add("lost")
        raise AssertionError(end.words)


def compare(path: Path, expected: dict[str, Any], tally: Tally, tolerance: float = 0.0) -> None:
    odd = differences(final_state(RunFolder.open(path)), expected, tolerance)
    tally.add("runs")
    tally.add("equal", int(not odd))
    assert odd == [], odd
