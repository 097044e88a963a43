"""Runs from the settings of another run or a file, for several seeds, and with more epochs than planned."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.calls import call, missing_facts, refused
from tests.support.moments import STEP, Killed, at_call, die
from tests.support.runs import STEPS, TINY, assert_same, begin, resume_run, snapshot, tiny
from uiat import recipes
from uiat.cli import main
from uiat.cli.train_options import first_config
from uiat.config import AnyConfig, Schedule
from uiat.config_json import to_json
from uiat.errors import UserError
from uiat.runs.provenance import extended
from uiat.runs.published import publish_run
from uiat.runs.run_folder import RunFolder
from uiat.targets import Momentum

NATURAL = ["digits-resnet8-natural", *TINY, "--train.epochs", "2"]
CONSTANT = Schedule(name="constant", lr=0.05)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_or_a_file_gives_its_settings(finished_run: RunFolder, here: Path) -> None:
    run, config = finished_run.path, finished_run.read_config()
    publish_run(run, here / "published-s7.json")
    (here / "mine.json").write_text(json.dumps(to_json(config)))
    places = {run: run.name, run / "config.json": run.name, run / "result.json": "result"}
    places |= {here / "published-s7.json": "published", Path("mine.json"): "mine"}
    for place, name in places.items():
        assert first_config(str(place), ["--seed", "1"]) == (name, config, ["--seed", "1"])
    _, changed, rest = first_config(str(run), ["--eps", "0.1", "--model", "wrn-10-1"])
    assert (changed.method.attack.eps, type(changed.model).__name__, rest) == (0.1, "WideResNet", [])  # type: ignore[union-attr]


def test_a_run_begins_with_the_settings_of_another(
    finished_run: RunFolder, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "runs" / "first-s0").mkdir(parents=True)
    (here / "runs" / "first-s0" / "config.json").write_bytes(finished_run.config.read_bytes())
    flags = ["--seed", "1", "--train.epochs", "1", "--device", "cpu"]
    assert call(capsys, "train", "runs/first-s0/config.json", *flags).code == 0
    config = finished_run.read_config()
    made = RunFolder.open("runs/first-s1").read_config()
    assert made == replace(config, seed=1, train=replace(config.train, epochs=1))
    help_text = call(capsys, "train", "runs/first-s0", "--help").out
    assert "--train.epochs INT Passes over the training set. (default: 3)" in " ".join(help_text.split())


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"model": {"kind": "Imported", "target": "evil:build", "features": ""}}, "--model evil:build"),
        ({"imports": [{"name": "evil", "folder": "/tmp"}]}, "--import evil"),
        ({"method": {"kind": "Evil"}}, "--import"),
        ({"model": {"kind": "Evil"}}, "Evil"),
        ({"schema": 99}, "schema"),
    ],
)
def test_code_that_only_a_file_names_is_not_imported(
    changes: dict[str, Any], fact: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "evil.py").write_text("raise SystemExit('imported')")
    saved = {**to_json(recipes.get_recipe(recipes.DEFAULT_RECIPE)), **changes}
    (here / "config.json").write_text(json.dumps(saved))
    assert fact in refused(capsys, "train", "./config.json")
    saved = to_json(recipes.get_recipe(recipes.DEFAULT_RECIPE))
    (here / "config.json").write_text(json.dumps({**saved, "data": {**saved["data"], "name": "evil:load"}}))
    assert "--data evil:load" in refused(capsys, "train", "config.json")


def test_a_place_without_settings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "runs").mkdir()
    assert "no config.json" in refused(capsys, "train", "runs")
    assert "there is no" in refused(capsys, "train", "runs/missing.json")
    assert "digits-resnet8-uiat" in refused(capsys, "train", "digits-resnet8-uait")


def test_a_run_for_each_seed_resumes_where_it_was_killed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["train", *NATURAL, "--seeds", "3", "5", "--out", "x"]
    with at_call(STEP, 2 * STEPS + STEPS + 1, die), pytest.raises(Killed):  # in the second epoch of the second run
        main(args)
    assert [RunFolder(f"x-s{seed}").is_finished for seed in (3, 5)] == [True, False]
    before = RunFolder("x-s3").checkpoint.read_bytes()
    found = call(capsys, *args)
    assert found.code == 0
    assert "x-s3 is finished" in found.out
    assert found.out.splitlines()[-1] == "done; next: uiat evaluate x-s3 x-s5"
    assert RunFolder("x-s3").checkpoint.read_bytes() == before
    assert main(["train", *NATURAL, "--seed", "5", "--out", "alone"]) == 0
    assert_same(RunFolder("x-s5"), snapshot(RunFolder("alone")))


def test_runs_of_other_settings_are_not_resumed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["train", *NATURAL, "--seeds", "0", "--out", "x"]
    RunFolder.create("x-s0", tiny("natural"))
    assert missing_facts(refused(capsys, *args), "train.epochs 3 x-s0 2") == []
    assert "--seeds" in refused(capsys, *args, "--seed", "1")
    assert "--seeds has no number" in refused(capsys, "train", *NATURAL, "--seeds")


def test_a_longer_run_is_the_shorter_one_extended(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = begin(tiny("uiat", schedule=CONSTANT), here / "whole")
    run = begin(tiny("uiat", schedule=CONSTANT, epochs=2, checkpoint_minutes=0.0), here / "run")
    args = ["train", "--resume", "run", "--train.epochs", "3", "--device", "cpu"]
    with at_call(STEP, 2, die), pytest.raises(Killed):
        main(args)
    assert not run.is_finished
    assert call(capsys, *args).code == 0  # the same command again
    found, expected = snapshot(run), snapshot(whole)
    assert run.read_card()["resumed"][0]["changes"]["train.epochs"] == [2, 3]
    unlike = ("/result/resumed", "/result/config/train/checkpoint_minutes", "/files")
    names = [name for name in expected if not name.startswith(unlike)]
    assert [name for name in names if found[name] != expected[name]] == []
    assert call(capsys, "train", "--resume", "run", "--device", "cpu").code == 0
    assert "more" in refused(capsys, *args[:3], "--train.epochs", "2")


def refusals() -> dict[str, tuple[AnyConfig, str]]:
    """Return runs of 4 epochs that cannot be extended to 8 after two, and a fact that the message contains."""
    uiat: Any = tiny("uiat", schedule=CONSTANT, epochs=4)
    momentum = replace(uiat, method=replace(uiat.method, momentum=Momentum(start=0.5)))
    return {
        "onecycle": (tiny("sat", epochs=4), "onecycle"),
        "triangular": (tiny("sat", epochs=4, schedule=Schedule(name="triangular")), "triangular"),
        "piecewise": (tiny("sat", epochs=4, schedule=Schedule(name="piecewise", milestones=(0.25,))), "piecewise"),
        "momentum": (momentum, "method.momentum.start = 0.5 is epoch 2 of 4, and epoch 4 of 8"),
        "helper": (tiny("hat", epochs=4, schedule=CONSTANT), "helper"),
    }


@pytest.mark.parametrize("case", refusals())
def test_what_cannot_be_extended(case: str) -> None:
    config, fact = refusals()[case]
    with pytest.raises(UserError) as error:
        extended(config, 8, 2, Path("run"))
    assert fact in str(error.value)
    assert "--init run" in str(error.value)


def test_what_lies_ahead_may_depend_on_the_number_of_epochs() -> None:
    piecewise = tiny("sat", epochs=4, schedule=Schedule(name="piecewise", milestones=(0.5,)))
    assert extended(piecewise, 8, 2, Path("run")).train.epochs == 8
    uiat: Any = tiny("uiat", schedule=CONSTANT, epochs=8)
    ahead = replace(uiat, method=replace(uiat.method, momentum=Momentum(start=0.5)))
    assert extended(ahead, 12, 2, Path("run")).train.epochs == 12
    off = replace(uiat, method=replace(uiat.method, momentum=Momentum(enabled=False, start=0.5)))
    assert extended(off, 12, 8, Path("run")).train.epochs == 12


def test_an_edited_number_of_epochs_is_refused_where_the_past_depends_on_it(tmp_path: Path) -> None:
    run = begin(tiny("natural", epochs=1), tmp_path / "run")
    saved = json.loads(run.config.read_text())
    run.config.write_text(json.dumps({**saved, "train": {**saved["train"], "epochs": 2}}))
    with pytest.raises(UserError, match=r"train\.epochs .*1 .*2"):
        resume_run(run)
