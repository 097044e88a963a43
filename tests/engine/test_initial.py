"""Runs that begin with given weights: files, runs and exports; of bundled and custom networks."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.calls import call, missing_facts, refused
from tests.support.moments import STEP, Killed, at_call, die
from tests.support.runs import (
    STEPS,
    TINY,
    assert_same,
    begin,
    finished,
    load_checkpoint,
    resume_run,
    snapshot,
    splits,
    tiny,
)
from uiat.config import AnyConfig, Averaging
from uiat.engine.setup import head_of, initial_model
from uiat.errors import UserError
from uiat.methods import HAT
from uiat.models import Imported
from uiat.runs.run_folder import RunFolder
from uiat.types import DataSpec

OWN = """\
from torch import nn


def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, num_classes))
"""


@pytest.fixture
def natural() -> RunFolder:
    """A run whose weights are the initial weights of others."""
    return finished(tiny("natural", averaging=Averaging(True)))


def still(init: str, **changes: object) -> AnyConfig:
    """A run with a learning rate that never changes the weights."""
    plan = tiny("sat", **changes)
    schedule = replace(plan.train.schedule, lr=0.0)
    return replace(plan, init=init, train=replace(plan.train, schedule=schedule, epochs=1))


def parameters(path: Path) -> dict[str, Tensor]:
    return {name: t for name, t in load_file(path).items() if "running" not in name and "tracked" not in name}


def test_every_form(natural: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "export", str(natural.path), "--out", str(tmp_path / "export")).code == 0
    raw = load_file(natural.last)
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in raw.items()}}, tmp_path / "public.pt")
    forms = {
        str(natural.path): natural.best_averaged,
        str(natural.best): natural.best,
        str(tmp_path / "export"): natural.best_averaged,
        str(tmp_path / "public.pt"): natural.last,
    }
    for number, (given, file) in enumerate(forms.items()):
        run = begin(still(given), tmp_path / str(number))
        assert json.loads(run.config.read_text())["init"] == given
        expected = parameters(file)
        for weights in (run.initial, run.last):
            assert all(torch.equal(tensor, expected[name]) for name, tensor in parameters(weights).items()), given


def test_the_average_begins_with_them(natural: RunFolder, tmp_path: Path) -> None:
    run = begin(still(str(natural.last), averaging=Averaging(True)), tmp_path / "run")
    expected = parameters(natural.last)
    for name, tensor in parameters(run.last_averaged).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-7)


def test_they_are_needed_once(natural: RunFolder, tmp_path: Path) -> None:
    """A run resumes in the same bits after the file is gone, from the first step."""
    file = tmp_path / "weights.safetensors"
    file.write_bytes(natural.best.read_bytes())
    config = replace(tiny("sat", checkpoint_minutes=0.0, epochs=2), init=str(file))
    whole = begin(config, tmp_path / "whole")
    run = RunFolder.create(tmp_path / "run", config)
    with at_call(STEP, 1, die, before=True), pytest.raises(Killed):
        resume_run(run)
    file.unlink()
    with at_call(STEP, STEPS + 2, die), pytest.raises(Killed):
        resume_run(run)
    assert resume_run(run)
    assert_same(run, snapshot(whole))


def test_hat_and_its_helper_begin_with_them(natural: RunFolder, tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes(natural.best.read_bytes())
    config = replace(still(str(file)), method=tiny("hat").method)
    assert isinstance(config.method, HAT)
    run = RunFolder.create(tmp_path / "run", config)
    with at_call(STEP, 1, die, before=True), pytest.raises(Killed):
        resume_run(run)
    file.unlink()
    assert resume_run(run)
    expected = parameters(natural.best)
    for place in (run, RunFolder.open(run.helper)):
        assert all(torch.equal(tensor, expected[name]) for name, tensor in parameters(place.last).items())


def three(tmp_path: Path) -> Path:
    """Data with three classes."""
    label = np.arange(90) % 3
    image = np.random.default_rng(0).integers(0, 80, (90, 8, 8)) + 80 * label[:, None, None]
    np.savez(tmp_path / "three.npz", image=image.astype(np.uint8), label=label)
    return tmp_path / "three.npz"


def test_another_number_of_classes(natural: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--data", str(three(tmp_path)), "--data.crop", "0", "--model.width", "4", "--model.blocks", "1", "1"]
    args = [
        "train",
        "digits-resnet8-sat",
        *flags,
        "--init",
        str(natural.path),
        "--train.epochs",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    message = refused(capsys, *args)
    assert missing_facts(message, f"{natural.best_averaged} linear.weight 10 3 --train.fresh-head") == []
    assert not (tmp_path / "run").exists()
    assert call(capsys, *args, "--train.fresh-head").code == 0
    ours, theirs = load_file(tmp_path / "run" / "init.safetensors"), load_file(natural.best_averaged)
    assert ours["linear.weight"].shape[0] == 3
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if not name.startswith("linear."))


def test_a_fresh_head_for_a_network_of_other_classes(natural: RunFolder) -> None:
    """The network itself has the wrong number of outputs, so the message does not advise omitting the flag."""
    config = replace(still(str(natural.best), fresh_head=True), model=Imported("tests.support.networks:LeNet"))
    with pytest.raises(UserError) as caught:
        initial_model(config, DataSpec(3, 60, (1, 8, 8)))
    assert "3 outputs" in str(caught.value)
    assert "num_classes" in str(caught.value)
    assert "omit" not in str(caught.value)


def test_a_fresh_head_of_the_same_size(natural: RunFolder) -> None:
    plain = initial_model(still(""), splits().spec).state_dict()
    fresh = initial_model(still(str(natural.best), fresh_head=True), splits().spec).state_dict()
    assert torch.equal(fresh["linear.weight"], plain["linear.weight"])
    assert torch.equal(fresh["conv1.weight"], load_file(natural.best)["conv1.weight"])


def test_a_custom_network_begins_with_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "initial_net.py").write_text(OWN)
    given = {"1.weight": torch.rand(8, 64), "1.bias": torch.zeros(8)}
    head = {"3.weight": torch.rand(10, 8), "3.bias": torch.zeros(10)}
    save_file(given | head, "whole.safetensors")
    torch.save(given, "body.pt")
    flags = [word for word in TINY if word not in ("--model.width", "4")]
    args = ["train", "digits-resnet8-uiat", "--model", "initial_net:build", *flags]
    assert call(capsys, *args, "--init", "whole.safetensors", "--out", "a").code == 0
    assert torch.equal(load_file("a/init.safetensors")["3.weight"], head["3.weight"])
    missing = refused(capsys, *args, "--init", "body.pt", "--out", "b")
    assert missing_facts(missing, "body.pt 3.weight '(10, 8)'") == []
    assert call(capsys, *args, "--init", "body.pt", "--train.fresh-head", "--out", "b").code == 0
    assert torch.equal(load_file("b/init.safetensors")["1.weight"], given["1.weight"])
    named = ("--model", "initial_net:build")
    assert call(capsys, "evaluate", "b", *named, "--n", "10", "--attacks", "natural").code == 0


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ("nowhere.pt", "nowhere.pt weights"),
        (".", "folder run export weights"),
    ],
)
def test_weights_that_are_not_there(
    given: str, facts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert missing_facts(refused(capsys, "train", *TINY, "--init", given, "--out", "run"), facts) == []
    assert not Path("run").exists()


def test_another_network(natural: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["train", *TINY, "--model.width", "8", "--init", str(natural.best), "--out", str(tmp_path / "run")]
    assert "instead of (8, 1, 3, 3)" in refused(capsys, *args)
    assert not (tmp_path / "run").exists()


def test_a_fresh_head_needs_weights_and_a_head() -> None:
    with pytest.raises(UserError, match=r"--train\.fresh-head is given without --init"):
        initial_model(still("", fresh_head=True), splits().spec)
    body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(3))
    assert head_of(body, 3) == ()
    assert head_of(torch.nn.Linear(4, 3), 3) == ("weight", "bias")


def test_a_run_says_nothing_of_weights_it_does_not_have() -> None:
    run = finished(tiny("natural"))
    assert not run.initial.exists()
    assert load_checkpoint(run)["epoch"] == 4
