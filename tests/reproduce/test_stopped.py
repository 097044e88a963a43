"""Stopped, failed, removed and published runs: jobs, tables, benchmarks and notes."""

import json
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.calls import call
from tests.support.moments import STEP
from tests.support.tiny import TINY, fork_command, tiny_scale
from tools.publish_runs import publish
from uiat.cli.reproduce import STOPPED
from uiat.cli.reproduce_job import default_folder
from uiat.cli.reproduce_output import Attempts
from uiat.engine.signals import StopSignal
from uiat.errors import UserError
from uiat.io import write_json
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.figure import Figure
from uiat.reproduce.measures import Attacked
from uiat.reproduce.output import write_table
from uiat.reproduce.runner import Runner, Stopped
from uiat.reproduce.timing import Timing
from uiat.reproduce.workers import SlurmJob


def failing(original: Any, name: str, error: Exception) -> Any:
    def act(self: Any, *args: Any, **named: Any) -> Any:
        if getattr(self, "name", type(getattr(self, "model", None)).__name__) == name:
            raise error
        return original(self, *args, **named)

    return act


def test_what_cannot_be_written_stops_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = failing(write_table, "table6", IndexError("list index\nout of range"))
    monkeypatch.setattr("uiat.cli.reproduce_output.write_table", write)
    monkeypatch.setattr(Figure, "write", failing(Figure.write, "fig3", UserError("cannot write fig3.svg: no room.")))
    args = ("reproduce", "table1", "table6", "fig3", "fig1", "--only", "natural", "--jobs", "0", "--out", str(tmp_path))
    with tiny_scale():
        found = call(capsys, *args)
    assert found.code == 1
    assert "failed: table6: IndexError: list index out of range" in found.err.splitlines()
    assert "failed: fig3: cannot write fig3.svg: no room." in found.err.splitlines()
    assert "Traceback" not in found.err
    assert (tmp_path / "logs" / "output.txt").read_text(encoding="utf-8").count("Traceback") == 1
    assert (tmp_path / "table1.md").exists()
    assert (tmp_path / "index.md").exists()
    assert "table1: table1.md" in found.out
    assert "table6" not in found.out


def test_a_benchmark_that_fails_leaves_its_places_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(self: Timing, *args: Any, **named: Any) -> None:
        raise torch.OutOfMemoryError("there is no memory left")

    monkeypatch.setattr(Timing, "measure", measure)
    with tiny_scale():
        found = call(capsys, "reproduce", "table2", "--jobs", "0", "--out", str(tmp_path))
    assert found.code == 1
    lines = [line for line in found.err.splitlines() if line.startswith("failed: times of table2 on ResNet")]
    assert len(lines) == 3
    assert all("no memory left" in line for line in lines)
    row = next(r for r in (tmp_path / "table2.md").read_text("utf-8").splitlines() if r.startswith("| UIAT |"))
    assert row.count("–") == 3


@pytest.mark.parametrize("error", [Stopped(), KeyboardInterrupt()])
def test_a_stop_is_no_failure(error: BaseException, tmp_path: Path) -> None:
    def act() -> None:
        raise error

    attempt = Attempts(tmp_path / "log.txt")
    with pytest.raises(type(error)):
        attempt("this", act)
    assert attempt.failed == []


def test_a_note_of_a_failure_that_another_command_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(Cell(TINY.config("sat")), tmp_path)
    store.path.mkdir(parents=True)
    worker = Runner(tmp_path, torch.device("cpu"), None, StopSignal(), print, "this call")
    assert worker.failures([store.cell]) == {}
    write_json(store.failure, {"reason": "fire", "call": "this call"})
    assert worker.failures([store.cell]) == {store.path.name: "fire"}
    read = Path.read_text

    def read_text(self: Path, *args: Any, **named: Any) -> str:
        if self.name == store.failure.name and self.exists():
            os.unlink(self)  # between the check and the reading
        return read(self, *args, **named)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert worker.failures([store.cell]) == {}


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
    code, output = fork_command(tmp_path / "1.txt", *command, stop_at=f"{STEP}:3").end()
    assert (code, STOPPED) == (os.EX_TEMPFAIL, 75), output
    assert "run the same command to resume" in output
    (checkpoint,) = out.glob("runs/*/checkpoint.pt")
    assert not (checkpoint.parent / "result.json").exists()
    code, output = fork_command(tmp_path / "2.txt", *command).end()
    assert code == 0, output
    assert "resuming at epoch 2, after step 1" in output


def test_a_stopped_plan_has_the_code_of_its_signal(tmp_path: Path) -> None:
    args = ("reproduce", "fig1", "--only", "natural", "--jobs", "0", "--out", str(tmp_path / "out"))
    code, output = fork_command(tmp_path / "1.txt", *args, stop_at=f"{STEP}:3").end()
    assert code == 128 + signal.SIGTERM, output
    assert "run the same command to resume" in output


def test_a_job_is_done_when_its_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, codes = Store(Cell(TINY.config("sat")), tmp_path), [0, 75, 0]

    def run(args: list[str], *, check: bool) -> None:
        if code := codes.pop(0):
            raise subprocess.CalledProcessError(code, args)

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
    assert (again.arguments, again.cell, again.out) == (job.arguments, job.cell, job.out)


def test_published_runs_are_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_folder("cpu") == Path("runs/reproduce-cpu")
    Path("results/cpu").mkdir(parents=True)
    assert default_folder("cpu") == Path("results/cpu")
    assert default_folder("smoke") == Path("runs/reproduce-smoke")


@pytest.mark.parametrize("published", [False, True])
def test_a_run_without_weights_is_made_again_only_to_measure_more(
    published: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ("reproduce", "table1", "--only", "sat", "--jobs", "0", "--out", str(tmp_path))
    last = ("reproduce", "table1-last", "--only", "sat", "--jobs", "0", "--out", str(tmp_path))
    with tiny_scale():
        assert call(capsys, *table).code == 0
        before = (tmp_path / "table1.md").read_text("utf-8")
        for pattern in ("*.pt", "best*", "last*"):
            for file in tmp_path.glob(f"runs/*/{pattern}"):
                file.unlink()
        if published:
            publish(tmp_path, tmp_path)
            assert {path.suffix for path in (tmp_path / "runs").iterdir()} == {".json"}
        again = call(capsys, *table)
        assert (again.code, (tmp_path / "table1.md").read_text("utf-8")) == (0, before)
        assert "run 1 of" not in again.err
        more = call(capsys, *last)
        assert more.code == 0
        assert "has no weights to measure" in more.err
        assert "is the same run as before" in more.err
        once_more = call(capsys, *table)
        assert once_more.code == 0
        assert "run 1 of" not in once_more.err, "what was measured before is there"
    assert (tmp_path / "table1.md").read_text("utf-8") == before


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("same", [True, False])
def test_measurements_stay_only_if_the_run_is_the_same(tmp_path: Path, same: bool, stopped: bool) -> None:
    store = Store(Cell(TINY.config("sat"), (Attacked("natural"),)), tmp_path)
    accuracies = {"val_natural": 0.5, "val_robust": 0.25}
    epochs = [{"kind": "epoch", "epoch": k + 1, **accuracies, "loss": 0.1 * k, "seconds": float(k)} for k in range(3)]

    def train(last_loss: float) -> None:
        lines = [*epochs[:2], {**epochs[2], "loss": last_loss, "seconds": 9.0}]
        store.run.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        store.run.result.write_text('{"config": {}}', encoding="utf-8")

    store.measures.mkdir(parents=True)
    train(0.2)
    store.keep(Attacked("natural"), ({"accuracy": 1.0}, {}))
    store.begin_again()
    assert not store.trained
    assert not store.has(Attacked("natural"))
    if stopped:  # before the card was removed: the next call starts from scratch again
        store.run.result.write_text('{"config": {}}', encoding="utf-8")
        store.begin_again()
    train(0.2 if same else 0.2 + 1e-9)
    assert store.restore_measurements() is same
    assert store.has(Attacked("natural")) is same
    assert not store.before.exists()
    assert store.restore_measurements() is False, "there is nothing left to restore"
    assert store.has(Attacked("natural")) is same
