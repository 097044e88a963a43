"""Progress output of a run."""

import io
import re
from pathlib import Path

import pytest

from uiat import progress
from uiat.progress import PipeSafeConsole, Reporter

RECORD = {
    "epoch": 1,
    "loss": 2.5,
    "loss_ce": 1.25,
    "loss_kl": 0.125,
    "train_accuracy": 0.25,
    "val_natural": 0.5,
    "val_robust": 0.375,
    "seconds": 3.0,
}
LOSS = r"epoch 1/3  loss 2\.500  ce 1\.250  kl 0\.125"
LINE = LOSS + r"  train 25\.0%  natural 50\.0%  attacked 37\.5%  left \d+:\d\d:\d\d"


def show(log: Path, *, terminal: bool) -> str:
    """Report two steps and an epoch of a run of three, and return what was printed."""
    screen = io.StringIO()
    console = PipeSafeConsole(file=screen, force_terminal=terminal, width=160, _environ={})
    with Reporter(log, epochs=3, steps=2, done=0, console=console) as report:
        report.step(1, 0, {"loss": 2.75, "loss_ce": 1.5})
        report.step(1, 1)
        report.epoch(RECORD, best=True)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    shown = show(tmp_path / "log.txt", terminal=True)
    assert re.search(LINE + "  best so far", shown)
    assert re.search(r"epoch 1/3 .*2/6 left \d+:\d\d:\d\d .*loss 2\.750  ce 1\.500", shown)


def test_anything_else_gets_lines(tmp_path: Path) -> None:
    shown = show(tmp_path / "log.txt", terminal=False)
    assert re.fullmatch(LINE + "  best so far\n", shown)


def test_the_log_keeps_the_lines(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("before\n")
    show(log, terminal=True)
    before, line = log.read_text().splitlines()
    assert before == "before"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  " + LINE + "  best so far", line)


def test_a_long_epoch_prints_progress_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    screen = io.StringIO()
    console = PipeSafeConsole(file=screen, force_terminal=False, width=160, _environ={})
    with Reporter(tmp_path / "log.txt", epochs=2, steps=100, done=100, console=console) as report:
        assert report.left() == "?"
        for step in range(10):
            now[0] += 20
            report.step(2, step)
    lines = screen.getvalue().splitlines()
    assert lines[0] == "epoch 2/2  step 2/100  left 0:32:40"  # 98 steps of 20 seconds
    assert lines[1] == "epoch 2/2  step 4/100  left 0:32:00"
    assert len(lines) == 5


def test_markup_in_a_line_is_text(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = PipeSafeConsole(file=screen, force_terminal=False, width=40, _environ={})
    line = "saved in [bold]here[/nowhere] " + "x" * 60
    with Reporter(tmp_path / "log.txt", 1, 1, 0, console) as report:
        report.say(line)
    assert screen.getvalue() == line + "\n"


def test_a_narrow_terminal_keeps_the_count_and_the_time(tmp_path: Path) -> None:
    out = io.StringIO()
    console = PipeSafeConsole(file=out, force_terminal=True, width=60, color_system=None)
    with Reporter(tmp_path / "log.txt", epochs=100, steps=400, done=0, console=console) as report:
        report.step(1, 0, {f"loss_part{k}": 1.0 for k in range(8)})
    assert re.search(r"1/40000 left [-\d]+:[-\d]+", out.getvalue())
    assert "…" in out.getvalue()
