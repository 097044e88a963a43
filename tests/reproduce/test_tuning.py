"""The tuning budget: the runs of each method, and that the settings in use are the selected ones."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.processes import ROOT
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.experiments.selection import TUNED_FIELDS, candidates
from uiat.reproduce.experiments.tables import TABLE1_METHODS
from uiat.reproduce.scales import SCALES

CPU = SCALES["cpu"]
PUBLISHED = ROOT / "results" / "cpu"


def settings(method: str, tuned: dict[str, dict[str, float]]) -> list[tuple[float, float | None]]:
    scale = replace(CPU, tuned=tuned)
    weight = TUNED_FIELDS.get(method, "")
    found: list[Any] = list(candidates(scale, method).values())
    return [(run.train.schedule.lr, getattr(run.method, weight, None)) for run in found]


def test_three_runs_the_rate_first_and_then_the_weight() -> None:
    assert settings("uiat", {}) == [(0.1, 3.5), (0.2, 3.5), (0.1, 1.75)]
    assert settings("uiat", {"uiat": {"lr": 0.2}}) == [(0.1, 3.5), (0.2, 3.5), (0.2, 1.75)]
    assert settings("uiat", {"uiat": {"lr": 0.2, "lam": 1.75}}) == [(0.1, 3.5), (0.2, 3.5), (0.2, 1.75)]
    assert settings("sat", {}) == [(0.1, None), (0.2, None), (0.05, None)]


@pytest.mark.parametrize("method", TABLE1_METHODS.values())
def test_the_setting_in_use_won_on_the_validation_split(method: str) -> None:
    """As far as runs are published: of two finished runs the better one is in use until the third is there."""
    finished = [store for run in candidates(CPU, method).values() if (store := Store(Cell(run), PUBLISHED)).trained]
    if not finished:
        assert method not in CPU.tuned
        return
    best = max(finished, key=lambda store: store.card["best"]["val_robust"])
    assert best.cell.config == CPU.config(method)
