"""Training that is killed repeatedly at random moments ends in the bits of an uninterrupted run."""

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.kills import CALLS, LARGEST, METHODS, SAVING, Tally, Unbroken, random_cause, run_command, train

CASES = [(method, saving, seed) for method in METHODS for saving in SAVING for seed in range(3)]
SAMPLE = ("uiat", "by-step", 0)


def marked(case: tuple[str, str, int]) -> Any:
    return pytest.param(*case, marks=() if case == SAMPLE else pytest.mark.faults)


@pytest.mark.parametrize(("method", "saving", "seed"), [marked(case) for case in CASES])
def test_killed_again_and_again(
    method: str, saving: str, seed: int, unbroken: Unbroken, tally: Tally, tmp_path: Path
) -> None:
    expected, seconds = unbroken.get(method, saving)
    chance, wanted = random.Random(f"{method} {saving} {seed}"), 4 if (method, saving, seed) == SAMPLE else 8
    deaths, places = 0, (tmp_path / f"run{number}" for number in itertools.count())
    out = next(places)
    while deaths < wanted:
        tally.add("resumes", int((out / "config.json").exists()))
        end = run_command(train(method, saving, out), cause=random_cause(chance, seconds, CALLS, LARGEST))
        tally.end(end)
        deaths += end.killed
        if end.finished:
            tally.compare(out, expected)
            out = next(places)
    tally.add("resumes", int((out / "config.json").exists()))
    end = run_command(train(method, saving, out))
    tally.end(end)
    tally.compare(out, expected)
