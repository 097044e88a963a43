"""The selection of weights: which runs follow from finished ones, and which setting is selected."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.calls import call
from tests.support.tiny import trained
from uiat.cli import main
from uiat.cli.reproduce_job import Job
from uiat.methods import SingleStep
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.experiments.beyond import INVERSE, WITHOUT, control, selected_runs, without_inverse
from uiat.reproduce.experiments.selection import (
    BEYOND,
    GRID,
    RATES,
    keeps_natural,
    measures,
    planned,
    selection,
    setting,
    table1_selected,
)
from uiat.reproduce.experiments.tables import TABLE1_METHODS, table1_last
from uiat.reproduce.scale import Scale
from uiat.reproduce.scales import SCALES


@pytest.fixture
def cpu(tmp_path: Path) -> Scale:
    return replace(SCALES["cpu"], finished_in=tmp_path)


def finish(
    scale: Scale, method: str, value: float, accuracy: float, lr: float | None = None, natural: float = 0.5
) -> None:
    """Write a run and its accuracies on the unused images."""
    assert scale.finished_in is not None
    store = trained(Cell(setting(scale, method, value, lr).config), scale.finished_in, 0)
    for name, measure in measures(scale).items():
        share = natural if name == "natural" else accuracy
        store.keep(measure, ({"accuracy": share}, {"correct": torch.zeros(1)}))


def runs(scale: Scale, method: str) -> list[tuple[float, float]]:
    return [(own.value, own.config.train.schedule.lr) for own in planned(scale, method)[0]]


def selected(scale: Scale, method: str) -> str | None:
    found = planned(scale, method)[1]
    return None if found is None else found.label


@pytest.mark.parametrize("method", GRID)
def test_runs_follow_from_the_finished_ones(cpu: Scale, method: str) -> None:
    """A best value inside the grid is trained at the other rate; one at its end needs a value beyond it first."""
    grid, used = GRID[method], cpu.config(method).train.schedule.lr
    (other,) = {*RATES} - {used}
    at_start = [(value, used) for value in grid]
    assert runs(cpu, method) == at_start
    for value in grid[:-1]:
        finish(cpu, method, value, 0.2)
        assert runs(cpu, method) == at_start
    finish(cpu, method, grid[-1], 0.3)
    assert runs(cpu, method) == [*at_start, (BEYOND[grid][1], used)]
    finish(cpu, method, grid[0], 0.4)
    assert runs(cpu, method) == [*at_start, (BEYOND[grid][0], used)]
    finish(cpu, method, grid[2], 0.5)
    assert runs(cpu, method) == [*at_start, (grid[2], other)]
    assert selected(cpu, method) is None
    finish(cpu, method, grid[2], 0.45, other)
    assert selected(cpu, method) == setting(cpu, method, grid[2]).label
    finish(cpu, method, grid[2], 0.55, other)
    assert selected(cpu, method) == setting(cpu, method, grid[2], other).label


def test_a_value_beyond_the_grid_may_be_the_best(cpu: Scale) -> None:
    for value in GRID["uiat"]:
        finish(cpu, "uiat", value, 0.3 if value == 0.25 else 0.2)
    finish(cpu, "uiat", 0.125, 0.4)
    assert runs(cpu, "uiat")[-2:] == [(0.125, 0.2), (0.125, 0.1)]
    finish(cpu, "uiat", 0.125, 0.1, 0.1)
    assert selected(cpu, "uiat") == "lr 0.2, λ 0.125"


def test_values_are_beyond_their_grids() -> None:
    for grid, (below, above) in BEYOND.items():
        assert 0 < below < min(grid) < max(grid) < above
    assert set(BEYOND) == set(GRID.values())
    assert set(GRID) == set(TABLE1_METHODS.values())


def finish_all(scale: Scale, method: str, best: float, accuracy: float = 0.5) -> None:
    for value in GRID[method]:
        finish(scale, method, value, accuracy if value == best else 0.2)
    used = scale.config(method).train.schedule.lr
    finish(scale, method, best, 0.1, next(rate for rate in RATES if rate != used))


def test_table_1_gets_a_row_for_each_selected_setting_and_none_before(cpu: Scale) -> None:
    assert table1_selected(cpu) == table1_last(cpu)
    finish_all(cpu, "uiat", 1.0)
    finish_all(cpu, "trades", 6)
    table = table1_selected(cpu)
    rows = list(dict.fromkeys(entry.row for entry in table.entries))
    assert rows[rows.index("UIAT") + 1] == "UIAT, selected: lr 0.2, λ 1"
    assert len(rows) == len(TABLE1_METHODS) + 1, "TRADES has the paper's weight"
    assert any("TRADES" in note for note in table.notes)
    own = [entry for entry in table.entries if entry.row.startswith("UIAT, sel")]
    assert {entry.group for entry in own} == {cpu.data["CIFAR-10"]}
    assert {entry.cell for entry in own} == {Cell(setting(cpu, "uiat", 1.0).config)}
    assert set(table1_last(cpu).entries) < set(table.entries), "no other entry changed"


def test_notes_name_the_selected_and_the_one_that_keeps_natural_accuracy(cpu: Scale) -> None:
    assert len(selection(cpu).notes) == 1
    finish_all(cpu, "uiat", 1.0)
    finish(cpu, "sat", 8, 0.2, natural=0.5)
    finish(cpu, "uiat", 7.0, 0.35, natural=0.4)
    finish(cpu, "uiat", 1.0, 0.3, natural=0.55)
    notes = " ".join(selection(cpu).notes)
    assert "Selected: UIAT: lr 0.2, λ 1." in notes
    assert "UIAT: lr 0.2, λ 1" in notes.partition("The most robust")[2]
    kept = keeps_natural(cpu, planned(cpu, "uiat")[0])
    assert kept is not None
    assert kept.value == 1.0


def test_a_plan_has_the_runs_that_follow(cpu: Scale, capsys: pytest.CaptureFixture[str]) -> None:
    for value in GRID["uiat"]:
        finish(cpu, "uiat", value, 0.5 if value == 2.0 else 0.2)
    args = ("reproduce", "selection", "--scale", "cpu", "--only", "uiat", "--out", str(cpu.finished_in), "--plan")
    plan = call(capsys, *args).out
    other = Cell(setting(cpu, "uiat", 2.0, 0.1).config)
    assert other.name in plan
    assert plan.count(f"{other.name} ·") == 1


def test_one_command_makes_the_runs_that_follow(cpu: Scale, monkeypatch: pytest.MonkeyPatch) -> None:
    """λ = 7, at the end of the grid, is the best: 14 follows, then the other rate of 7, and then nothing."""
    made: list[list[tuple[float, float]]] = []

    def make(job: Job, stop: object) -> dict[str, str]:
        left = [cell for cell in job.cells if not Store(cell, job.out).trained]
        configs: list[Any] = [cell.config for cell in left]
        made.append([(config.method.lam, config.train.schedule.lr) for config in configs])
        for lam, lr in made[-1]:
            finish(cpu, "uiat", lam, 0.5 if lam == 7 else 0.2, lr)
        return {}

    monkeypatch.setattr("uiat.cli.reproduce.make", make)
    monkeypatch.setattr("uiat.cli.reproduce.write_outputs", lambda job: [])
    assert main(["reproduce", "selection", "--scale", "cpu", "--only", "uiat", "--out", str(cpu.finished_in)]) == 0
    assert made == [[(lam, 0.2) for lam in GRID["uiat"]], [(14.0, 0.2)], [(7.0, 0.1)]]
    assert selected(cpu, "uiat") == "lr 0.2, λ 7"


def test_the_control_has_the_selected_settings_with_and_without_an_inverse_adversary(cpu: Scale) -> None:
    assert not selected_runs(cpu)
    grid = GRID["uiat-oneoff"]
    for value in grid:
        finish(cpu, "uiat-oneoff", value, 0.4 if value == 1.0 else 0.3)
    finish(cpu, "uiat-oneoff", 1.0, 0.3, lr=0.1)
    found = selected_runs(cpu)
    assert len(found) == 4, "one-off UIAT and N-FGSM + UIAT, each with and without"
    for row in {row for row, _ in found}:
        without, with_inverse = (found[row, part] for part in (WITHOUT, INVERSE))
        assert without == without_inverse(with_inverse)
        method: Any = with_inverse.method
        assert (method.uiat if isinstance(method, SingleStep) else method).lam == 1.0
    assert {entry.row for entry in control(cpu).entries if "λ = 1" in entry.section} == {WITHOUT, INVERSE}
