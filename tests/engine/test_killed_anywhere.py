"""A run that is killed after a step, or before or after a write, resumes in the same bits."""

import contextlib
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.moments import LINE, RENAME, STEP, Killed, at_call, die
from tests.support.runs import CPU, STEPS, assert_same, load_checkpoint, resume_run, snapshot, splits, tiny
from uiat.config import AnyConfig
from uiat.engine.loop import train
from uiat.runs.run_folder import RunFolder

UIAT = tiny("uiat")
SAVED_BY_STEP = tiny("uiat", checkpoint_minutes=0.0)
ONE_OFF = tiny("uiat-oneoff")
CONFIGS = {"uiat": UIAT, "uiat-saved-by-step": SAVED_BY_STEP, "one-off": ONE_OFF}
OTHERS = ("uiat", "one-off")


@dataclass(frozen=True)
class Case:
    """A configuration, the snapshot of its uninterrupted run, and the number of its writes."""

    config: AnyConfig
    whole: dict[str, object]
    writes: dict[str, int]


def interrupted(config: AnyConfig, path: Path, target: str, number: int, before: bool) -> RunFolder:
    run = RunFolder.create(path, config)
    with at_call(target, number, die, before=before), pytest.raises(Killed):
        train(config, run, splits(), CPU)
    return run


@pytest.fixture(
    scope="module", params=["uiat-saved-by-step", *(pytest.param(name, marks=pytest.mark.faults) for name in OTHERS)]
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Train a run without interruption, and count its writes."""
    config = CONFIGS[request.param]
    run = RunFolder.create(tmp_path_factory.mktemp("whole") / "run", config)
    with at_call(LINE, 0, die) as lines, at_call(RENAME, 0, die) as renames:
        assert resume_run(run)
    return Case(config, snapshot(run), {LINE: lines[0], RENAME: renames[0]})


@pytest.mark.parametrize("step", [STEPS, STEPS + 2, 3 * STEPS])
def test_after_a_step(case: Case, step: int, tmp_path: Path) -> None:
    run = interrupted(case.config, tmp_path / "run", STEP, step, before=False)
    each = case.config.train.checkpoint_minutes == 0
    assert steps_seen(run) == (step - 1 if each else (step - 1) // STEPS * STEPS)
    assert resume_run(run)
    assert_same(run, case.whole)


def steps_seen(run: RunFolder) -> int:
    """Return the number of steps in the last checkpoint of a run."""
    saved = load_checkpoint(run) if run.checkpoint.exists() else {"epoch": 1, "step": 0}
    return (int(saved["epoch"]) - 1) * STEPS + int(saved["step"])


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("target", [LINE, RENAME], ids=["line", "rename"])
def test_around_a_write(case: Case, target: str, before: bool, tmp_path: Path) -> None:
    count, chance = case.writes[target], random.Random(f"{target} {before}")
    again = interrupted(case.config, tmp_path / "again", target, chance.randint(1, count // 2), before)
    with at_call(target, chance.randint(1, count // 3), die, before=before), pytest.raises(Killed):
        resume_run(again)
    for run in (again, interrupted(case.config, tmp_path / "last", target, count, before)):
        assert resume_run(run)
        assert_same(run, case.whole)


def test_within_a_line(case: Case, tmp_path: Path) -> None:
    run = interrupted(case.config, tmp_path / "run", LINE, 3, before=True)
    with run.metrics.open("a") as metrics:
        metrics.write('{"kind": "st')
    assert resume_run(run)
    assert_same(run, case.whole)


def test_within_a_checkpoint(case: Case, tmp_path: Path) -> None:
    """A partially written file keeps its temporary name, next to the complete one, and has no effect."""
    run = interrupted(case.config, tmp_path / "run", STEP, STEPS + 2, before=False)
    (run.path / ".checkpoint.pt.tmp").write_bytes(b"half")
    (run.path / ".last.safetensors.tmp").write_bytes(b"half")
    assert resume_run(run)
    assert_same(run, case.whole)


def test_again_and_again(case: Case, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", case.config)
    for step in _steps(random.Random(0)):
        with at_call(STEP, step, die), contextlib.suppress(Killed):
            resume_run(run)
    assert resume_run(run)
    assert_same(run, case.whole)


def _steps(chance: random.Random) -> Iterator[int]:
    for _ in range(4):
        yield chance.randint(2, 2 * STEPS)


def test_within_the_creation_of_the_folder(tmp_path: Path) -> None:
    """After a kill between the link to config.json and the removal of its temporary file, a resume removes it."""
    run = RunFolder.create(tmp_path / "run", UIAT)
    abandoned = run.path / ".config.json.killed.tmp"
    os.link(run.config, abandoned)
    with run.lock():
        assert not abandoned.exists()
    assert run.read_config() == UIAT


def test_before_the_first_step(case: Case, tmp_path: Path) -> None:
    run = interrupted(case.config, tmp_path / "run", STEP, 1, before=True)
    assert not run.checkpoint.exists()
    assert resume_run(run)
    assert_same(run, case.whole)
