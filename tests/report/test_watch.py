"""`uiat watch`: the progress of a run, its curves and its checkpoint."""

from pathlib import Path

import pytest

from tests.support.calls import call, refused
from tests.support.reports import copy_of, paths
from uiat.cli.watch import LEVELS, sparkline
from uiat.runs.run_folder import RunFolder


def test_a_finished_and_an_unfinished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = call(capsys, "watch", paths()[2]).out
    assert "uiat  UIAT on digits: finished" in out
    assert "best epoch" in out
    assert "last checkpoint: 0:" in out
    going = copy_of("sat", tmp_path / "going")
    (going / "result.json").unlink()
    assert "not finished: 4 of 4 epochs" in call(capsys, "watch", str(going), "--once").out
    with RunFolder(going).lock():
        assert "still training: 4 of 4 epochs" in call(capsys, "watch", str(going), "--once").out
    for name in ("metrics.jsonl", "checkpoint.pt"):
        (going / name).unlink()
    out = call(capsys, "watch", str(going), "--once").out
    assert "no epoch has finished yet" in out
    assert "no checkpoint yet" in out


def test_curves_are_blocks() -> None:
    assert sparkline([0, 0.5, 1], 10, 1.0) == LEVELS[0] + LEVELS[4] + LEVELS[7]
    assert sparkline([2.0, 4.0], 1, 0.0) == LEVELS[7]


def test_errors_are_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--every is 0.0" in refused(capsys, "watch", paths()[0], "--every", "0")
    assert "has 3 runs" in refused(capsys, "watch", str(Path(paths()[0]).parent))
    assert "has no run" in refused(capsys, "watch", str(tmp_path))
