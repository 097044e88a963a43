"""Keys: equal configurations are one run, different ones are not, and results of other versions are not reused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.calls import call
from tests.support.tiny import TINY, tiny_scale
from uiat import recipes
from uiat.config_json import from_json, to_json
from uiat.methods import METHODS
from uiat.recipes.variants import change_method
from uiat.reproduce import measures
from uiat.reproduce.cell import Cell, Store, merge, method_name
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.experiments.beyond import choices
from uiat.reproduce.experiments.tables import ablated
from uiat.reproduce.measures import Attacked, Measure, Watch, measure_key
from uiat.reproduce.output import commits, mixed
from uiat.reproduce.scale import Scale
from uiat.reproduce.scales import SCALES

SMOKE = SCALES["smoke"]


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_table_1s_uiat_is_table_6s_last_row(scale: Scale) -> None:
    assert Cell(ablated(scale, "5")).key == Cell(scale.config("uiat")).key
    assert len({Cell(ablated(scale, row)).key for row in "12345"}) == 5


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_what_is_compared_with_uiat_part_by_part_has_its_learning_rate_and_weight(scale: Scale) -> None:
    """Also IAT, which takes UIAT's place in Table 6 and in the open questions: it may be tuned to other values."""
    other = replace(scale, tuned={**scale.tuned, "iat": {"lr": 0.7, "lam": 0.3}})
    uiat: Any = other.config("uiat")
    changed = [config for name, config in choices(other).items() if "λ" not in name]
    runs: list[Any] = [*(ablated(other, row) for row in "12345"), *changed]
    assert {(run.train, run.method.lam) for run in runs} == {(uiat.train, uiat.method.lam)}
    assert {type(run.method).__name__ for run in runs} == {"IAT", "UIAT"}


def test_anything_of_the_configuration_changes_the_key() -> None:
    config = SMOKE.config("uiat")
    cell = Cell(config)
    assert Cell(SMOKE.config("uiat")).key == cell.key
    others = [
        replace(config, seed=1),
        replace(config, train=replace(config.train, epochs=9)),
        replace(config, data=replace(config.data, subset=799)),
        change_method(config, None, lam=3.6),
        change_method(config, "inverse", beta=0.5),
    ]
    assert len({cell.key, *(Cell(other).key for other in others)}) == 6
    assert Cell(config, watch=Watch()).key != cell.key
    assert Cell(config, (Attacked("natural"),)).key == cell.key, "what is measured is no part of the run"


def test_merging_keeps_every_measurement_once() -> None:
    first, second = Attacked("natural"), Attacked("pgd-20", 10)
    config, other = SMOKE.config("sat"), SMOKE.config("trades")
    merged = merge([Cell(config, (first,)), Cell(other, (first,)), Cell(config, (second, first))])
    assert [(cell.config, cell.measures) for cell in merged] == [(config, (first, second)), (other, (first,))]


def test_measurements_have_unique_names() -> None:
    measures: list[Measure] = [
        Attacked("pgd-20"),
        Attacked("pgd-20", 10),
        Attacked("cw"),
        SMOKE.halves_curve(),
        SMOKE.inverse(),
    ]
    assert len({measure_key(measure) for measure in measures}) == 5


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_found_by_its_parts(name: str) -> None:
    config = SMOKE.config(name)
    assert method_name(config) == name
    assert method_name(replace(config, method=METHODS[name])) == name


def test_experiments_share_runs() -> None:
    cells = [cell for build in EXPERIMENTS.values() for cell in build(SMOKE).cells(2)]
    merged = merge(cells)
    assert len({cell.name for cell in merged}) == len(merged) < len({(c.key, c.measures) for c in cells})
    assert {cell.config.seed for cell in merged} == {0, 1}


CONFIG = recipes.get_recipe("digits-resnet8-uiat")
CYCLED = replace(CONFIG, train=replace(CONFIG.train, schedule=replace(CONFIG.train.schedule, low_momentum=0.8)))


def test_an_added_field_counts_when_it_is_used() -> None:
    saved, key = to_json(CONFIG), to_json(CONFIG, key=True)
    assert saved["train"]["schedule"]["low_momentum"] is None
    assert "low_momentum" not in key["train"]["schedule"]
    assert "nesterov" not in key["train"]
    assert to_json(CYCLED, key=True)["train"]["schedule"]["low_momentum"] == 0.8
    assert Cell(CONFIG).key != Cell(CYCLED).key


def test_a_configuration_without_the_field_is_read() -> None:
    saved = to_json(CONFIG, key=True)
    del saved["data"]["cutmix_with"]  # removed later: keys have it, configurations do not
    assert from_json(saved) == CONFIG


NATURAL = Attacked("natural", 10)


def finished(out: Path, method: str, commit: str | None, measured_by: str | None = None) -> Store:
    """Write the card of a finished run, and one measurement."""
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
