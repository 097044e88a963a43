"""The tuning of the small recipes: equal budgets, resumable, selected by validation images alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tune_small_recipes as tuning
from tests.support.processes import ROOT
from uiat.config import AnyConfig
from uiat.recipes import get_recipe


def test_all_methods_have_the_same_number_of_runs_and_they_all_differ() -> None:
    runs = tuning.plan(tuning.GRID, (0, 1))
    for name in tuning.RECIPES:
        for method, (field, values) in tuning.GRID.items():
            own = [(setting, seed) for setting, seed in runs if setting.method == method]
            assert len(own) == len(set(own)) == len(runs) // len(tuning.GRID) == 24
            configs: list[Any] = [setting.config(name, seed) for setting, seed in own]
            assert len({repr(config) for config in configs}) == 24
            changed = [getattr(config.train if field == tuning.DECAY else config.method, field) for config in configs]
            assert sorted(set(changed)) == sorted(values)
            assert {config.train.schedule.lr for config in configs} == set(tuning.RATES)


def test_finished_runs_are_skipped_and_a_torn_line_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[AnyConfig] = []

    def measure(config: AnyConfig, folder: str | None) -> dict[str, float] | None:
        made.append(config)
        lam: float = config.method.lam  # type: ignore[attr-defined]
        good = 10.0 if (lam, config.train.schedule.lr) == (1.0, 0.1) else 0.0
        return {"natural": 50 + good, "robust": 20 + good, "test natural": 90 - good, "test robust": 40 - good}

    monkeypatch.setattr(tuning, "measure", measure)
    file = tmp_path / "digits.jsonl"
    args = ["--methods", "uiat", "--seeds", "0", "1", "--out", str(file)]
    tuning.main(args)
    assert len(made) == 24
    assert [config.train.schedule.lr for config in made] == [lr for lr in tuning.RATES for _ in range(8)]
    shown = capsys.readouterr().out
    assert "| uiat, lam 1 | 70.00 | **90.00** | 70.00 |" in shown
    assert "| uiat | selected: lam 1, lr 0.1 | 80.00 ± 0.00 | 30.00 ± 0.00 |" in shown
    file.write_text(file.read_text("utf-8")[:-20], "utf-8")
    tuning.main([*args, "--show"])
    assert len(made) == 24
    assert "| uiat, lam 0.5 | 70.00 | 70.00 | – |" in capsys.readouterr().out
    for _ in range(2):
        tuning.main(args)
        assert len(made) == 25
        assert capsys.readouterr().out == shown


def test_a_run_is_measured_on_validation_images_and_on_test_images() -> None:
    config: Any = tuning.Setting("uiat", 1.0, 0.1).config("digits", 3)
    assert config.seed == 3
    short = replace(
        config,
        data=replace(config.data, subset=200, test_subset=40),
        train=replace(config.train, epochs=1),
        validate=replace(config.validate, steps=1),
    )
    found = tuning.measure(short, None)
    assert found is not None
    assert set(found) == {"natural", "robust", "test natural", "test robust"}
    assert all(0 <= value <= 100 for value in found.values())
    assert found["test natural"] % 2.5 == pytest.approx(0)  # shares of 40 images


@pytest.mark.parametrize("method", tuning.GRID)
def test_the_recipes_on_digits_have_the_selected_numbers(method: str) -> None:
    """Those that the published runs of the tuning select, over three seeds."""
    results = tuning.read_results(ROOT / "results" / "tuning" / "digits.jsonl", "digits")
    assert all((setting, seed) in results for setting in tuning.settings(method) for seed in range(3))
    expected = tuning.selected(results, method, (0, 1, 2)).config("digits", seed=0)
    assert get_recipe(f"digits-resnet8-{method}") == expected
