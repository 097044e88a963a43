"""Starting a run: a failed start leaves no files, and the message names the cause."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.calls import call, missing_facts, refused, stopped
from tests.support.runs import TINY
from uiat import recipes
from uiat.cli import main, train
from uiat.cli.train_options import parse_recipe
from uiat.config import check
from uiat.engine import loop
from uiat.errors import Resumable
from uiat.runs.run_folder import RunFolder

NATURAL = ["train", "digits-resnet8-natural", *TINY, "--train.epochs", "1"]
OWN = [
    *("train", "digits-resnet8-natural", "--model.width", "4", "--train.epochs", "1", "--train.batch-size", "16"),
    *("--validate.steps", "1", "--device", "cpu"),
]


def fails(*_: object, **__: object) -> None:
    raise RuntimeError("a bug")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def write_npz(path: Path, labels: Any = None, seed: int = 0) -> Path:
    label = np.arange(60) % 3 if labels is None else np.asarray(labels)
    image = np.random.default_rng(seed).integers(0, 255, (len(label), 8, 8), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, image=image, label=label)
    return path


def test_a_network_that_does_not_fit_is_found_before_there_is_a_folder(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "starts_net.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5))\n"
    )
    args = [word for k, word in enumerate(NATURAL) if "--model.width" not in NATURAL[max(k - 1, 0) : k + 1]]
    message = refused(capsys, *args, "--model", "starts_net:build", "--out", "runs/a")
    assert missing_facts(message, "starts_net:build 5 logits") == []
    assert not (here / "runs").exists()
    bench = ["--model", "starts_net:build", "--size", "8", "--channels", "1", "--batch-size", "4", "--rounds", "1"]
    assert "returns 5 logits a sample" in refused(capsys, "bench", *bench)


@pytest.mark.parametrize("recipe", ["digits-resnet8-natural", "digits-resnet8-hat"])
def test_a_start_that_fails_leaves_nothing(recipe: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ["train", recipe, *TINY, "--train.epochs", "1", "--out", "runs/a"]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", fails)
        with pytest.raises(RuntimeError, match="a bug"):
            main(args)
    assert list(here.iterdir()) == []
    if recipe.endswith("natural"):
        assert main(args) == 0


def test_what_was_in_the_folder_before_stays(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "a").mkdir()
    (here / "a" / "notes.txt").write_text("mine")
    monkeypatch.setattr(loop, "train_step", fails)
    with pytest.raises(RuntimeError):
        main([*NATURAL, "--out", "a"])
    assert [path.name for path in (here / "a").iterdir()] == ["notes.txt"]


def test_what_can_be_resumed_is_kept(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "train", lambda *_, **__: (_ for _ in ()).throw(Resumable("the disk is full.")))
    assert main([*NATURAL, "--out", "a"]) == 2
    assert (here / "a" / "config.json").exists()


def test_a_trained_helper_is_kept(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "train", fails)
    real = RunFolder.has_trained
    monkeypatch.setattr(RunFolder, "has_trained", lambda run: run.path.name == "helper" or real(run))
    with pytest.raises(RuntimeError):
        main([*NATURAL, "--out", "a"])
    assert (here / "a" / "config.json").exists()


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_without_its_checkpoints(finished: bool, run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (run_copy.checkpoint, run_copy.previous, *([] if finished else [run_copy.result])):
        file.unlink()
    metrics = run_copy.metrics.read_bytes()
    state = "finished" if finished else "not finished"
    error = stopped(capsys, "train", "--resume", str(run_copy.path))
    assert f"{run_copy.path} is {state}, but its checkpoints are missing" in error
    assert f"`uiat evaluate {run_copy.path}`" in error
    assert run_copy.metrics.read_bytes() == metrics
    assert call(capsys, "evaluate", str(run_copy.path), "--attacks", "natural", "--n", "5").code == 0


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_from_scratch(
    run_copy: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (run_copy.checkpoint, run_copy.previous, run_copy.result):
        file.unlink()
    run_copy.metrics.write_text(run_copy.metrics.read_text().splitlines(keepends=True)[0])
    found = call(capsys, "train", "--resume", str(run_copy.path))
    assert found.code == 0
    assert f"{run_copy.path} has no checkpoint yet: starting again at the first step" in found.err


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        (np.arange(60) % 3 + 1, "gaps.npz '4 classes' 0 gaps"),
        (np.arange(60) % 3 * 2, "gaps.npz '5 classes' '1, 3'"),
        (np.where(np.arange(60) % 2, 0, 20), "gaps.npz '21 classes' 19 '1, 2, 3, 4, 5, 6, 7, 8' 11"),
    ],
)
def test_labels_with_gaps(labels: Any, facts: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_npz(here / "gaps.npz", labels)
    trained = call(capsys, *OWN, "--data", "gaps.npz", "--data.crop", "0").err
    shown = call(capsys, "data", "info", "gaps.npz", "--json", "info.json").out
    for text in (trained, shown, json.loads(Path("info.json").read_text())["notes"][0]):
        assert missing_facts(" ".join(text.split()), facts) == []


def test_labels_without_gaps(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_npz(here / "whole.npz")
    assert "note" not in call(capsys, "data", "info", "whole.npz").out


def test_a_wrong_path_names_its_neighbour(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_npz(here / "data" / "mine.npz")
    (here / "photos" / "cats").mkdir(parents=True)
    for given, meant in (
        ("./data/mne.npz", "data/mine.npz"),
        ("dta/mine.npz", "data/mine.npz"),
        ("./photo", "photos"),
        ("photo", "photos"),
        ("./fotoalbum", "folder .npz module:callable"),
    ):
        assert missing_facts(refused(capsys, "train", "--data", given), meant) == []
    message = refused(capsys, "train", "--data", "qwxyz")
    assert missing_facts(message, "cifar10 cifar100 cifar100-coarse digits fashion-mnist svhn folder") == []
    assert "FOLDER" not in message
    (here / "runs" / "first").mkdir(parents=True)
    assert missing_facts(refused(capsys, "evaluate", "runs/frist"), "runs/frist runs/first") == []
    assert missing_facts(refused(capsys, "train", "--resume", "runs/frist"), "runs/first") == []


def test_a_run_on_custom_data_from_another_folder(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_npz(here / "work" / "mine.npz")
    write_npz(here / "work" / "mine-test.npz", np.arange(15) % 3, seed=1)
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "work")
    args = ["--data", "mine.npz", "--data.test", "mine-test.npz", "--data.crop", "0", "--out", "run"]
    assert call(capsys, *OWN, *args).code == 0
    monkeypatch.chdir(here / "elsewhere")
    run, measure = str(here / "work" / "run"), ["--attacks", "natural"]
    assert call(capsys, "evaluate", run, *measure).code == 0
    assert call(capsys, "train", "--resume", run).code == 0
    (here / "moved").mkdir()
    for name in ("mine.npz", "mine-test.npz"):
        shutil.move(here / "work" / name, here / "moved" / name)
    for command in (["evaluate", run], ["train", "--resume", run]):
        message = refused(capsys, *command)
        assert f"mine.npz nor at {here / 'work' / 'mine.npz'}" in message
        assert message.endswith("with --data PATH.")
    moved = str(here / "moved" / "mine.npz")
    assert " 15 " in call(capsys, "evaluate", run, *measure, "--data", moved).out, "the run's own test images"
    assert call(capsys, "train", "--resume", run, "--data", moved).code == 0
    assert call(capsys, "evaluate", run, *measure).code == 0  # the new path is saved
    other = str(write_npz(here / "moved" / "other.npz", seed=2))
    assert " 12 " in call(capsys, "evaluate", run, *measure, "--data", other).out, "a fifth of other data"
    assert "changed since" in stopped(capsys, "train", "--resume", run, "--data", other)


def test_custom_data_under_another_name_is_split_as_before(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As new data, a fifth of it would be the test set, part of which was trained on."""
    write_npz(here / "mine.npz")
    args = ["--data", "mine.npz", "--data.test-fraction", "0.1", "--data.crop", "0", "--out", "run"]
    assert call(capsys, *OWN, *args).code == 0
    (here / "mine.npz").rename(here / "renamed.npz")
    for name in ("renamed.npz", "./renamed.npz"):
        assert " 6 " in call(capsys, "evaluate", "run", "--attacks", "natural", "--data", name).out


def test_nothing_is_left_of_workers_that_died_before_a_step(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uiat.cli.train.launch", lambda *_: 1)
    monkeypatch.setattr("uiat.cli.train.check_processes", lambda *_: None)
    assert "workers" in stopped(capsys, *NATURAL, "--processes", "2", "--out", "run")
    assert not (here / "run").exists()


def test_a_custom_network_from_another_folder(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = here / "starts_away_net.py"
    source.write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    args = [word for k, word in enumerate(NATURAL) if "--model.width" not in NATURAL[max(k - 1, 0) : k + 1]]
    assert call(capsys, *args, "--model", "starts_away_net:build", "--out", "run").code == 0
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(here)])
    monkeypatch.delitem(sys.modules, "starts_away_net")
    for command in (["evaluate", str(here / "run")], ["train", "--resume", str(here / "run")]):
        message = refused(capsys, *command, "--model", "starts_away_net:build")
        assert missing_facts(message, f"starts_away_net {here / 'run'} {source}") == []


@pytest.mark.parametrize(
    ("args", "facts"),
    [
        ("--method.attack.eps 8", "method.attack.eps 8 8/255"),
        ("--method.inverse.eps 4", "method.inverse.eps 4 4/255"),
        ("--validate.eps 8.5", "validate.eps 8.5 8.5/255"),
        ("--eps 300", "--eps 300 8/255"),
        ("--eps 8", "--eps 8 8/255"),
        ("--eps -1", "--eps -1.0 0"),
        ("--eps eight", "--eps eight 8/255"),
        ("--method.inverse.beta nan", "method.inverse.beta nan 0"),
        ("--method.lam -inf", "method.lam -inf 0"),
    ],
)
def test_a_radius_out_of_range(args: str, facts: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert missing_facts(refused(capsys, "train", "digits-resnet8-uiat", *args.split()), facts) == []
    assert list(here.iterdir()) == []


def test_radii_of_the_commands_that_examine(finished_run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(finished_run.path)
    assert missing_facts(refused(capsys, "evaluate", run, "--eps", "8"), "--eps 8/255") == []
    assert missing_facts(refused(capsys, "evaluate", run, "--step", "nan"), "--step nan 0") == []
    assert missing_facts(refused(capsys, "curves", run, "--grid", "-8", "0"), "8/255") == []
    assert missing_facts(refused(capsys, "inverse", run, "--inverse-eps", "4"), "4/255") == []
    assert missing_facts(refused(capsys, "inverse", run, "--beta", "nan"), "--beta nan") == []


def test_an_l2_radius_above_1_is_taken() -> None:
    config, _ = parse_recipe(recipes.get_recipe("digits-resnet8-sat"), ["--method.attack.norm", "l2"])
    args = ["--method.attack.norm", "l2", "--method.attack.eps", "2", "--validate.eps", "3"]
    check(parse_recipe(config, args)[0])


@pytest.mark.parametrize(
    ("recipe", "args", "note"),
    [
        ("digits-resnet8-uiat", "--method.attack.eps 0.02", "attack.step = 0.05, method.inverse.eps = 0.1, method.inv"),
        (
            "digits-resnet8-uiat",
            "--method.attack.eps 0.08",
            "note: method.inverse.eps = 0.1, method.inverse.step = 0.1",
        ),
        ("digits-resnet8-uiat", "--method.attack.eps 0.08 --method.inverse.eps=0.1 --method.inverse.step 0.1", ""),
        ("digits-resnet8-uiat", "--eps 0.02", ""),
        ("digits-resnet8-sat", "--method.attack.eps 0.02 --method.attack.step 0.05", ""),
        ("digits-resnet8-n-fgsm-uiat", "--method.attack.eps 0.02", "note: method.uiat.inverse.eps = 0.1"),
    ],
)
def test_step_sizes_larger_than_a_smaller_radius(
    recipe: str, args: str, note: str, monkeypatch: pytest.MonkeyPatch, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "train", lambda *_, **__: True)
    lines = call(capsys, "train", recipe, *TINY, *args.split(), "--out", "run").err.splitlines()
    notes = [line for line in lines if line.startswith("note: method.")]
    assert len(notes) == bool(note)
    assert note in "".join(notes)


@pytest.mark.parametrize("recipe", ["digits-resnet8-iat", "digits-resnet8-n-fgsm-uiat", "digits-resnet8-natural"])
def test_eps_scales_all_radii_and_step_sizes(recipe: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "train", lambda *_, **__: True)
    assert main(["train", recipe, *TINY, "--eps", "1/30", "--out", "run"]) == 0
    config, base = RunFolder.open("run").read_config(), recipes.get_recipe(recipe)
    assert config.validate.attack(config.method).eps == 1 / 30
    if recipe.endswith("natural"):
        return
    method: Any = config.method
    before: Any = base.method
    scale = (1 / 30) / before.attack.eps
    assert method.attack.eps == 1 / 30
    inverse, old = (m.uiat.inverse if "fgsm" in recipe else m.inverse for m in (method, before))
    assert inverse.eps == pytest.approx(old.eps * scale)
    assert inverse.step == pytest.approx(old.step * scale)
    if "fgsm" not in recipe:
        assert method.attack.step == pytest.approx(before.attack.step * scale)
