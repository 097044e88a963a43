"""Numbers of other code are not taken for this code's: versions in keys, commits in the index and in a warning."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calls import call
from tests.reproduce.tiny import TINY, tiny_scale
from uiat.reproduce import measures
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import Attacked, measure_key
from uiat.reproduce.output import commits, mixed

NATURAL = Attacked("natural", 10)


def finished(out: Path, method: str, commit: str | None, measured_by: str | None = None) -> Store:
    """Put the card of a finished run, and one measurement, where they belong."""
    store = Store(Cell(TINY.config(method), (NATURAL,)), out)
    store.measures.mkdir(parents=True)
    store.run.result.write_text(json.dumps({"config": {}, "environment": facts(commit)}), encoding="utf-8")
    store.keep(NATURAL, ({"accuracy": 0.5, "environment": facts(measured_by or commit)}, {}))
    return store


def facts(commit: str | None) -> dict[str, Any]:
    return {"git_commit": commit, "versions": {"uiat": "0.1.0"}}


def test_a_new_version_leaves_old_numbers_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TINY.config("sat")
    old = (Cell(config).key, measure_key(NATURAL))
    monkeypatch.setattr(measures, "RESULTS_VERSION", measures.RESULTS_VERSION + 1)
    new = (Cell(config).key, measure_key(NATURAL))
    assert all(a != b for a, b in zip(old, new, strict=True))
    assert new == (Cell(config).key, measure_key(NATURAL))


def test_commits_are_counted_by_run(tmp_path: Path) -> None:
    first = finished(tmp_path, "sat", "a" * 40)
    assert mixed([first.cell], tmp_path) == ""
    second = finished(tmp_path, "trades", "a" * 40, "b" * 40)
    third = finished(tmp_path, "mart", None)
    unfinished = Cell(TINY.config("natural"))
    cells = [first.cell, second.cell, third.cell, unfinished]
    assert commits(cells, tmp_path) == {"a" * 10: 2, "b" * 10: 1, "version 0.1.0": 1}
    assert mixed(cells, tmp_path).endswith(f"of the code: {'a' * 10} (2), {'b' * 10} (1), version 0.1.0 (1)")
    assert mixed([unfinished], tmp_path) == ""


def test_different_commits_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("reproduce", "table6", "--only", "iat", "--jobs", "0", "--out", str(tmp_path))
    with tiny_scale():
        assert "mixed" not in call(capsys, *args).err
        (card,) = tmp_path.glob("runs/*/result.json")
        known = json.loads(card.read_text(encoding="utf-8"))
        known["environment"]["git_commit"] = "0123456789abcdef"
        card.write_text(json.dumps(known), encoding="utf-8")
        again = call(capsys, *args)
        plan = call(capsys, *args, "--plan")
    for text in (again.err, plan.err):
        (line,) = [line for line in text.splitlines() if line.startswith("mixed: ")]
        assert "0123456789 (1)" in line
    (line,) = [line for line in (tmp_path / "index.md").read_text("utf-8").splitlines() if "table6" in line]
    assert "; runs by " in line
    assert "0123456789" in line
