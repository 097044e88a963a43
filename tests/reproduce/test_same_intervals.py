"""`uiat curves --against` and Figure 5 give the same numbers for the same verdicts."""

import json
from pathlib import Path

import pytest

from tests.support.calls import call
from tests.support.tiny import TINY, tiny_scale
from uiat.reproduce.cell import Cell, Store


def test_a_difference_and_its_interval(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tiny_scale():
        one_off, trades = (Store(Cell(TINY.config(method)), made).path for method in ("uiat-oneoff", "trades"))
        measure = TINY.difference_curve()
    args = ["curves", str(one_off), "--against", str(trades), "--attack", measure.attack, "--out", str(tmp_path)]
    args += ["--n", str(measure.n), "--sample", "balanced", "--grid", *map(repr, measure.grid)]
    found = call(capsys, *args)
    assert found.code == 0, found.err
    ours = json.loads((tmp_path / "difference.json").read_text(encoding="utf-8"))
    figure = json.loads((made / "fig5.json").read_text(encoding="utf-8"))["points"]
    assert [point["x"] for point in figure] == ours["grid"]
    assert [point["value"] for point in figure] == [100 * value for value in ours["difference"]]
    assert [[point["low"], point["high"]] for point in figure] == [[100 * a, 100 * b] for a, b in ours["interval95"]]


def test_an_accuracy_and_its_interval(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tiny_scale():
        trades, measure = Store(Cell(TINY.config("trades")), made).path, TINY.halves_curve()
    args = ["curves", str(trades), "--attack", measure.attack, "--out", str(tmp_path), "--n", str(measure.n)]
    found = call(capsys, *args, "--sample", "balanced", "--grid", *map(repr, measure.grid))
    assert found.code == 0, found.err
    ours = json.loads((tmp_path / "curves.json").read_text(encoding="utf-8"))
    figure = json.loads((made / "fig4.json").read_text(encoding="utf-8"))["points"]
    for half in ("easier", "harder"):
        points = [point for point in figure if (point["panel"], point["line"]) == ("TRADES", f"{half} half")]
        assert [point["value"] for point in points] == [100 * value for value in ours["accuracy"][half]]
        shown = [[point["low"], point["high"]] for point in points]
        assert shown == [[100 * low, 100 * high] for low, high in ours["interval95"][half]]
