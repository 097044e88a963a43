"""Timings that other load does not distort, with a warning when they may be distorted; nothing is timed here."""

import random
import re

import pytest

from uiat.bench.cost_report import to_content
from uiat.bench.interleaved_timing import Rounds, Times, as_rounds, timing_warning


def disturbed(seconds: float, rounds: int, key: random.Random, busy: float, most: float) -> Rounds:
    """Return repetitions of which a share is slowed down by up to `most`; none is faster."""
    return as_rounds(
        [seconds * (1 + (key.uniform(0, most) if key.random() < busy else key.uniform(0, 0.01))) for _ in range(rounds)]
    )


@pytest.mark.parametrize("seed", range(20))
def test_rounds_that_were_only_slowed_down_give_the_true_ratio(seed: int) -> None:
    """Half of all turns are disturbed, up to twice the time: a median is fooled, the fastest is not."""
    key = random.Random(seed)
    times = Times(
        {name: disturbed(seconds, 25, key, 0.5, 1.0) for name, seconds in {"a": 1.5, "literal trades": 3.0}.items()},
        {"a": disturbed(1.5, 25, key, 0.5, 1.0)},
    )
    assert times.over_bare("a") == pytest.approx(1.0, abs=0.03)
    assert times.ratio("a", "literal trades") == pytest.approx(0.5, abs=0.015)
    assert times.timing_warning() == ""


@pytest.mark.parametrize("seed", range(20))
def test_rounds_that_are_all_disturbed_are_reported(seed: int) -> None:
    key = random.Random(seed)
    rounds = [1.0, *(1.2 + key.random() for _ in range(6))]
    times = Times(
        {"sat": as_rounds([1.0] * 7), "trades": as_rounds(key.sample(rounds, 7))}, {"sat": as_rounds([1] * 7)}
    )
    message = times.timing_warning()
    assert re.search(r"5% .*1 of 3 .*trades: ", message)
    assert to_content([], times, {})["doubt"] == message


def test_disturbed_bare_passes_are_reported_too() -> None:
    times = Times({"sat": as_rounds([1.0] * 3)}, {"sat": as_rounds([1.0, 1.0, 1.5])})
    assert "most for sat's bare passes: 50%" in times.timing_warning()


def test_phases_have_their_own_fastest_round() -> None:
    """A run that spends a quarter in its second phase; the two phases are quiet in different rounds."""
    rounds = Rounds((0.75, 0.25), [[1.0, 8.0], [4.0, 2.0], [1.0, 2.0], [1.1, 2.2]])
    assert rounds.fastest == 0.75 * 1.0 + 0.25 * 2.0
    assert rounds.spread == pytest.approx(0.1)
    assert rounds.turns(2) == [1.25, 1.25]
    assert rounds.turns(1) == [2.75, 3.5, 1.25, pytest.approx(1.375)]


@pytest.mark.parametrize(
    ("seconds", "agrees"),
    [([1.0, 1.04, 1.049], True), ([1.0, 1.0, 1.06], False), ([9.0, 1.0, 1.04, 5.0, 1.03], True)],
)
def test_three_of_the_rounds_have_to_agree(seconds: list[float], agrees: bool) -> None:
    assert (timing_warning({"sat": as_rounds(seconds)}) == "") == agrees


def test_two_rounds_show_nothing() -> None:
    assert as_rounds([1.0, 1.0]).spread is None
    assert "fewer than 3 rounds" in timing_warning({"sat": as_rounds([1.0, 1.0])})
