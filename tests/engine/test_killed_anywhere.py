"""Every moment at which something is written, and every step: a run that ends there goes on in the same bits."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.moments import LINE, RENAME, STEP, Killed, at_call, die
from tests.engine.runs import CPU, STEPS, assert_same, begin, go_on, snapshot, splits, tiny
from uiat.config import AnyConfig
from uiat.engine.loop import train
from uiat.engine.run import RunFolder

UIAT = tiny("uiat")
SAVED_BY_STEP = tiny("uiat", checkpoint_minutes=0.0)
ONE_OFF = tiny("uiat-oneoff")
CONFIGS = {"uiat": UIAT, "uiat-saved-by-step": SAVED_BY_STEP, "one-off": ONE_OFF}


Case = tuple[AnyConfig, dict[str, object]]
"""A configuration, and what its unbroken run left."""


def interrupted(config: AnyConfig, path: Path, target: str, number: int, before: bool) -> RunFolder:
    run = RunFolder.create(path, config)
    with at_call(target, number, die, before=before), pytest.raises(Killed):
        train(config, run, splits(), CPU)
    return run


def count(config: AnyConfig, path: Path, target: str) -> int:
    """How often an unbroken run calls a function."""
    run = RunFolder.create(path, config)
    with at_call(target, 0, die) as calls:
        go_on(run)
    return calls[0]


@pytest.fixture(scope="module", params=CONFIGS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    config = CONFIGS[request.param]
    return config, snapshot(begin(config, tmp_path_factory.mktemp("whole") / "run"))


@pytest.mark.parametrize("step", [1, STEPS, STEPS + 2, 3 * STEPS])
def test_after_a_step(case: Case, step: int, tmp_path: Path) -> None:
    config, whole = case
    run = interrupted(config, tmp_path / "run", STEP, step, before=False)
    assert go_on(run)
    assert_same(run, whole)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("target", [LINE, RENAME], ids=["line", "rename"])
def test_around_a_write(case: Case, target: str, before: bool, tmp_path: Path) -> None:
    config, whole = case
    moments = range(1, count(config, tmp_path / "counted", target) + 1)
    chosen = sorted(random.Random(f"{target} {before}").sample(moments[:-1], 2))
    for moment in (*chosen, moments[-1]):
        run = interrupted(config, tmp_path / str(moment), target, moment, before)
        assert go_on(run)
        assert_same(run, whole)


def test_within_a_line(case: Case, tmp_path: Path) -> None:
    config, whole = case
    run = interrupted(config, tmp_path / "run", LINE, 3, before=True)
    with run.metrics.open("a") as metrics:
        metrics.write('{"kind": "st')
    assert go_on(run)
    assert_same(run, whole)


def test_within_a_checkpoint(case: Case, tmp_path: Path) -> None:
    """A file half written stays beside the whole one, under its temporary name, and disturbs nobody."""
    config, whole = case
    run = interrupted(config, tmp_path / "run", STEP, STEPS + 2, before=False)
    (run.path / ".checkpoint.pt.tmp").write_bytes(b"half")
    (run.path / ".last.safetensors.tmp").write_bytes(b"half")
    assert go_on(run)
    assert_same(run, whole)


def test_again_and_again(case: Case, tmp_path: Path) -> None:
    config, whole = case
    run = RunFolder.create(tmp_path / "run", config)
    for step in _steps(random.Random(0)):
        with at_call(STEP, step, die), contextlib.suppress(Killed):
            go_on(run)
    assert go_on(run)
    assert_same(run, whole)


def _steps(chance: random.Random) -> Iterator[int]:
    for _ in range(6):
        yield chance.randint(2, 2 * STEPS)


def test_before_the_first_step(case: Case, tmp_path: Path) -> None:
    config, whole = case
    run = interrupted(config, tmp_path / "run", STEP, 1, before=True)
    assert not run.checkpoint.exists()
    assert go_on(run)
    assert_same(run, whole)
