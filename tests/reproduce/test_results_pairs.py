"""Sentences of the results page about pairs of methods, on files with a known winner."""

from pathlib import Path

import pytest

from benchmarks.results_pairs import Published, front_verdict, in_short, plus_verdict
from tests.support.tiny import first_of, measured
from uiat.config import AnyConfig
from uiat.recipes.plus import boosted, uiat_plus
from uiat.reproduce.cell import Cell
from uiat.reproduce.experiments.sweeps import FRONTS, front_cells
from uiat.reproduce.scales import SCALES

SMOKE, N = SCALES["smoke"], 400


def finished(config: AnyConfig, natural: float, robust: float, out: Path, seeds: int = 2) -> None:
    """Write a run with these accuracies, robust ones under every attack."""
    for column, share in (("Natural", natural), ("PGD", robust), ("Robust", robust), ("AA", robust)):
        measured(Cell(config), SMOKE.attacked(column), {"correct": first_of(N, share)}, out, seeds)


def fronts(out: Path, ahead: str) -> str:
    """Write all points of all fronts along one line, with one front above it, and return the verdict."""
    for line in FRONTS:
        for k, cell in enumerate(front_cells(SMOKE, line)):
            more = 0.15 if line == ahead else 0.0
            finished(cell.config, 0.7 - 0.1 * k + more, 0.3 + 0.1 * k + more, out)
    return "\n".join(front_verdict(Published(out, SMOKE, 2)))


def test_fronts_on_one_line_are_not_above_each_other(tmp_path: Path) -> None:
    text = fronts(tmp_path, "")
    assert "none, so no front is shown to lie above another" in text
    assert "UIAT, λ = 3.5" in text
    assert "| UIAT − SAT trained at ε = 0.125 |" in text, "beside SAT trained at a larger radius"


def test_the_page_says_where_sat_with_a_larger_radius_stands(tmp_path: Path) -> None:
    fronts(tmp_path, "UIAT (λ)")
    lines = in_short(Published(tmp_path, SMOKE, 2))
    (line,) = (line for line in lines if line.startswith("- UIAT against SAT trained at ε = 0.125:"))
    assert line.partition(": ")[2].startswith("above: Natural (+15.00), PGD-20 (+15.00), APGD (+15.00)")


def test_a_front_that_is_higher_is_named(tmp_path: Path) -> None:
    text = fronts(tmp_path, "TRADES (ω)")
    sentence = text.partition(" Compared, with")[0]
    assert "TRADES, ω = 3 above SAT trained at ε = 0.1;" in sentence
    assert "above TRADES" not in sentence
    assert "UIAT, λ = 3.5 above" not in sentence


def test_fronts_without_all_seeds_are_not_compared(tmp_path: Path) -> None:
    for line in FRONTS:
        for cell in front_cells(SMOKE, line):
            finished(cell.config, 0.7, 0.3, tmp_path, seeds=1)
    assert front_verdict(Published(tmp_path, SMOKE, 2)) == []


@pytest.mark.parametrize(("natural", "robust", "won"), [(0.7, 0.5, True), (0.5, 0.5, False), (0.7, 0.4, False)])
def test_uiat_plus_wins_only_without_loss_of_natural_accuracy(
    natural: float, robust: float, won: bool, tmp_path: Path
) -> None:
    others = [SMOKE.config(name) for name in ("uiat", "uiat-oneoff")]
    others += [boosted(SMOKE.config(name)) for name in ("sat", "trades", "mart")]
    for config in others:
        finished(config, 0.7, 0.4, tmp_path)
    finished(uiat_plus(SMOKE.config("uiat-oneoff")), natural, robust, tmp_path)
    (sentence,) = plus_verdict(Published(tmp_path, SMOKE, 2))
    assert sentence.startswith("`uiat-plus` is more robust" if won else "Nothing that was tried")
