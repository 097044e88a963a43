"""Two checkpoints are kept: if the newer one is damaged, a run resumes from the older one, in the same bits."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.moments import RENAME, STEP, Killed, at_call, die
from tests.support.runs import CPU, STEPS, begin, differences, resume_run, snapshot, splits, tiny
from uiat.engine.setup import build_state
from uiat.errors import UserError
from uiat.runs.checkpoint import Checkpointer
from uiat.runs.run_folder import RunFolder

CONFIG = tiny("uiat", checkpoint_minutes=0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return snapshot(begin(CONFIG, tmp_path_factory.mktemp("whole") / "run"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunFolder.create(tmp_path_factory.mktemp("killed") / "run", CONFIG)
    with at_call(STEP, STEPS + 3, die), pytest.raises(Killed):
        resume_run(run)
    return run.path


@pytest.fixture
def run(killed: Path, tmp_path: Path) -> RunFolder:
    """Return a copy of a run that was killed in its second epoch, after the table was begun."""
    return RunFolder.open(shutil.copytree(killed, tmp_path / "run"))


def place(path: Path) -> tuple[int, int]:
    saved = torch.load(path, weights_only=True)
    return saved["epoch"], saved["step"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def load(run: RunFolder) -> Checkpointer:
    checkpoints = Checkpointer(run)
    assert checkpoints.load(build_state(CONFIG, splits().spec, CPU, None), CPU)
    return checkpoints


def test_two_generations_and_their_tables_are_there(run: RunFolder) -> None:
    assert (place(run.previous), place(run.checkpoint)) == ((2, 1), (2, 2))
    named = {torch.load(path, weights_only=True)["table_file"] for path in (run.previous, run.checkpoint)}
    assert {path.name for path in run.path.glob("table-*")} == named
    assert load(run).notices == []


@pytest.mark.parametrize("victim", ["checkpoint", "table"])
def test_the_previous_one_takes_over(
    victim: str, run: RunFolder, whole: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    table = run.path / torch.load(run.checkpoint, weights_only=True)["table_file"]
    damaged = run.checkpoint if victim == "checkpoint" else table
    flip(damaged)
    assert resume_run(run)
    said = (
        f"{damaged} is {'missing or damaged' if victim == 'table' else 'damaged or of another version'}: resuming from"
    )
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert said in run.log.read_text()
    assert differences(snapshot(run), whole) == []


def test_opening_a_run_to_read_writes_nothing(run: RunFolder) -> None:
    """`uiat inverse` and `evaluate` read z from a checkpoint; only a training prints that it resumes."""
    flip(run.checkpoint)
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    saved = Checkpointer(run).read()
    assert saved is not None
    assert (saved["epoch"], saved["step"]) == (2, 1)
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_the_metrics_are_cut_to_the_one_that_is_loaded(run: RunFolder) -> None:
    size = torch.load(run.previous, weights_only=True)["metrics_bytes"]
    run.metrics.write_bytes(run.metrics.read_bytes() + b'{"kind": "st')
    flip(run.checkpoint)
    load(run)
    assert run.metrics.stat().st_size == size


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 7))
def test_a_damaged_one_never_replaces_the_complete_one(
    number: int, before: bool, run: RunFolder, whole: dict[str, Any]
) -> None:
    flip(run.checkpoint)
    with at_call(RENAME, number, die, before=before), pytest.raises(Killed):
        resume_run(run)
    assert resume_run(run)
    assert differences(snapshot(run), whole) == []


def test_killed_between_the_two_renames(run: RunFolder, whole: dict[str, Any]) -> None:
    os.replace(run.checkpoint, run.previous)
    (notice,) = load(run).notices
    assert "checkpoint.pt is missing" in notice
    assert resume_run(run)
    assert differences(snapshot(run), whole) == []


def test_both_damaged_is_an_error_and_nothing_is_changed(run: RunFolder) -> None:
    flip(run.checkpoint)
    flip(run.previous)
    run.metrics.write_bytes(run.metrics.read_bytes() + b"more")
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.name != "lock"}
    with pytest.raises(UserError) as caught:
        resume_run(run)
    for fact in (f"{run.checkpoint} is damaged", f"{run.previous} is damaged", f"`uiat train --resume {run.path}`"):
        assert fact in str(caught.value)
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.name != "lock"} == before
    run.checkpoint.unlink()
    run.previous.unlink()
    assert resume_run(run)  # as the message advises


def test_a_run_of_a_version_without_digests(run: RunFolder, whole: dict[str, Any], tmp_path: Path) -> None:
    saved = torch.load(run.checkpoint, weights_only=True)
    del saved["table_sha256"]
    run.previous.unlink()
    torch.save(saved, run.checkpoint)
    old = RunFolder.open(shutil.copytree(run.path, tmp_path / "old"))
    assert resume_run(old)
    assert differences(snapshot(old), whole) == []


def test_another_version_is_not_skipped(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uiat.runs.checkpoint.CHECKPOINT_SCHEMA", 2)
    with pytest.raises(UserError, match="written by another version of uiat"):
        load(run)


def test_metrics_that_were_cut_are_not_filled_with_zeros(run: RunFolder) -> None:
    os.truncate(run.metrics, 10)
    load(run)
    assert run.metrics.stat().st_size == 10
