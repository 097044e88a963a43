"""A table, a race or a note that fails, or vanishes, stops nothing else."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.calls import call
from tests.reproduce.tiny import TINY, tiny_scale
from uiat.cli.reproduce_output import Attempts
from uiat.engine.signals import StopSignal
from uiat.errors import UserError
from uiat.io import write_json
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.figure import Figure
from uiat.reproduce.runner import Runner, Stopped
from uiat.reproduce.table import Table
from uiat.reproduce.timing import Timing


def failing(original: Any, name: str, error: Exception) -> Any:
    def act(self: Any, *args: Any, **named: Any) -> Any:
        if getattr(self, "name", type(getattr(self, "model", None)).__name__) == name:
            raise error
        return original(self, *args, **named)

    return act


def test_what_cannot_be_written_stops_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "write", failing(Table.write, "table6", IndexError("list index\nout of range")))
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


def test_a_race_that_fails_leaves_its_places_empty(
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
            os.unlink(self)  # right between a look and the reading
        return read(self, *args, **named)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert worker.failures([store.cell]) == {}
