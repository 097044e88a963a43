"""Results go to stdout, progress and notes to stderr, and no control characters into files."""

import io
import os
import pty
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.calls import call
from tests.support.processes import run_uiat
from tests.support.runs import TINY
from uiat import progress
from uiat.runs.run_folder import RunFolder


def test_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "a run"
    found = call(capsys, "train", "digits-resnet8-sat", *TINY, "--out", str(run))
    first, *epochs, last = found.out.splitlines()
    assert first == f"run folder: {run}"
    assert [line.split("  ")[0] for line in epochs] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert last == f"done; next: uiat evaluate '{run}'"
    assert found.err.startswith("note: 12 steps ")
    assert found.err.count("\n") == 1
    assert "--train.batch-size" in found.err
    assert "--train.epochs 8" in found.err


def test_enough_steps_are_no_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["digits-resnet8-natural", *TINY, "--train.epochs", "8", "--out", str(tmp_path / "run")]
    assert call(capsys, "train", *args).err == ""


def test_a_log_file_beside_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """stderr is a terminal and gets the bar; stdout is a file and gets the lines."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    args = ["train", "digits-resnet8-natural", *TINY, "--out", str(tmp_path / "run")]
    screen: list[bytes] = []
    reader = threading.Thread(target=lambda: screen.extend(read_terminal(ours)))
    reader.start()
    with (tmp_path / "log").open("w") as log:
        assert run_uiat(tmp_path / "rest", *args, stdout=log.fileno(), stderr=theirs)[0] == 0
    os.close(theirs)
    reader.join(60)
    lines = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5
    assert lines[1].startswith("epoch 1/3  loss")
    assert not any("\x1b" in line or "\r" in line for line in lines)
    assert b"\x1b[" in b"".join(screen)


def read_terminal(ours: int) -> Iterator[bytes]:
    """Yield what a terminal gets, until it is closed."""
    with suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
        while part := terminal.read(4096):
            yield part


def test_lines_are_printed_above_the_bar_where_both_are_one_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setattr("sys.stderr", Terminal())
    report = progress.Reporter(tmp_path / "log.txt", 1, 1, 0)
    assert report.bar is not None
    assert report.results is report.console


def test_no_bar_while_another_program_may_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w") as pipe, os.fdopen(ours):
        monkeypatch.setattr("sys.stdout", pipe)
        console = progress.PipeSafeConsole(file=io.StringIO(), force_terminal=True)
        assert progress.Reporter(tmp_path / "log.txt", 1, 1, 0, console).bar is None


def test_export_says_what_it_wrote(run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "export", str(run_copy.path))
    wrote, after = found.out.splitlines()
    assert wrote == f"{run_copy.path}/export: model.safetensors, model.py, example.py, card.json, README.md"
    assert after == f"done; next: uiat evaluate {run_copy.path}"
    assert found.err.startswith("note: the card has no accuracies")


def test_other_commands(run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(run_copy.path)
    found = call(capsys, "evaluate", target, "--attacks", "natural", "--n", "4")
    assert "natural" in found.out
    assert "\x1b" not in found.out + found.err
    assert found.err.startswith("network: ResNet")
    found = call(capsys, "curves", target, "--n", "4", "--grid", "0")
    assert (found.out.splitlines()[-2], found.err) == (f"written: {target}/curves", "")
    found = call(capsys, "inverse", target, "--n", "4", "--weights", "last")
    assert (found.out.splitlines()[-2], found.err) == (f"written: {target}/inverse", "")
    assert call(capsys, "list", "models").err == ""
    assert call(capsys, "data", "info", "digits").err == ""


def test_nothing_is_written_to_a_closed_terminal() -> None:
    ours, theirs = pty.openpty()
    os.close(ours)
    with os.fdopen(theirs, "w") as terminal:
        console = progress.PipeSafeConsole(file=terminal)
        console.print("nobody reads this")
        assert console.quiet
        os.dup2(os.open(os.devnull, os.O_WRONLY), theirs)  # what is in its buffer
