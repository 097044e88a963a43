"""Published runs have cards and verdicts but no weights: they are found, and not made again."""

from pathlib import Path

import pytest

from tests.cli.calls import call
from tests.reproduce.tiny import tiny_scale
from uiat.cli.reproduce_job import default_folder


def test_published_runs_are_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_folder("cpu") == Path("runs/reproduce-cpu")
    Path("results/cpu").mkdir(parents=True)
    assert default_folder("cpu") == Path("results/cpu")
    assert default_folder("smoke") == Path("runs/reproduce-smoke")


def test_a_run_without_weights_is_made_again_only_to_measure_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ("reproduce", "table1", "--only", "sat", "--jobs", "0", "--out", str(tmp_path))
    last = ("reproduce", "table1-last", "--only", "sat", "--jobs", "0", "--out", str(tmp_path))
    with tiny_scale():
        assert call(capsys, *table).code == 0
        before = (tmp_path / "table1.md").read_text("utf-8")
        for pattern in ("*.pt", "best*", "last*"):
            for file in tmp_path.glob(f"runs/*/{pattern}"):
                file.unlink()
        again = call(capsys, *table)
        assert (again.code, (tmp_path / "table1.md").read_text("utf-8")) == (0, before)
        assert "run 1 of" not in again.err
        more = call(capsys, *last)
        assert more.code == 0
        assert "has no weights to measure: it is trained again" in more.err
        assert call(capsys, *table).code == 0
    assert (tmp_path / "table1.md").read_text("utf-8") == before
