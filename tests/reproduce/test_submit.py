"""Jobs of a scheduler: one that was stopped is not done, and says so by its exit code."""

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.calls import call
from tests.engine.moments import STEP
from tests.reproduce.forks import fork
from tests.reproduce.tiny import TINY, tiny_scale
from uiat.cli.reproduce import STOPPED
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.workers import SlurmJob


def planned(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    """Return the one command that a plan prints."""
    with tiny_scale():
        found = call(capsys, "reproduce", *args, "--plan")
    (command,) = [line.split() for line in found.out.splitlines() if line.startswith("uiat reproduce")]
    return command[1:]


def test_a_stopped_cell_is_a_temporary_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real SIGTERM in the second epoch."""
    out = tmp_path / "out"
    command = planned(capsys, "fig1", "--only", "natural", "--out", str(out))
    code, words = fork(tmp_path / "1.txt", *command, stop_at=f"{STEP}:3").end()
    assert (code, STOPPED) == (os.EX_TEMPFAIL, 75), words
    assert "the same command goes on" in words
    (checkpoint,) = out.glob("runs/*/checkpoint.pt")
    assert not (checkpoint.parent / "result.json").exists()
    code, words = fork(tmp_path / "2.txt", *command).end()
    assert code == 0, words
    assert "going on in epoch 2, after step 1" in words


def test_a_stopped_plan_has_the_code_of_its_signal(tmp_path: Path) -> None:
    args = ("reproduce", "fig1", "--only", "natural", "--jobs", "0", "--out", str(tmp_path / "out"))
    code, words = fork(tmp_path / "1.txt", *args, stop_at=f"{STEP}:3").end()
    assert code == 128 + signal.SIGTERM, words
    assert "the same command goes on" in words


def test_a_job_is_done_when_its_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, codes = Store(Cell(TINY.config("sat")), tmp_path), [0, 75, 0]

    def run(words: list[str], *, check: bool) -> None:
        if code := codes.pop(0):
            raise subprocess.CalledProcessError(code, words)

    monkeypatch.setattr("uiat.reproduce.workers.subprocess", SimpleNamespace(run=run))
    job = SlurmJob(["uiat", "reproduce"], store.cell, tmp_path)
    with pytest.raises(RuntimeError, match="is not finished"):
        job()
    with pytest.raises(subprocess.CalledProcessError):
        job()
    store.path.mkdir(parents=True)
    store.run.result.write_text('{"config": {}}', encoding="utf-8")
    assert job() == 0
    again = job.checkpoint().function
    assert (again.words, again.cell, again.out) == (job.words, job.cell, job.out)
