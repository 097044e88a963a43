"""`uiat evaluate` of a run."""

import json
import os
import shutil
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.calls import call, missing_facts, stopped
from tests.support.networks import LeNet
from tests.support.runs import CPU, DATA, begin, splits, tiny
from uiat.attacks import PGD
from uiat.engine.setup import build_model
from uiat.evaluation.suite import accuracy
from uiat.models import MODELS, Imported
from uiat.runs.run_folder import RunFolder, read_json
from uiat.runs.weights import load_weights
from uiat.types import DataSpec

DIGITS = replace(DATA, subset=400, crop=0, flip=False)
CONFIG = replace(tiny("sat", epochs=8), data=DIGITS)
"""Long enough for a network that is better than chance."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return begin(CONFIG, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(trained: RunFolder, tmp_path: Path) -> RunFolder:
    return RunFolder.open(shutil.copytree(trained.path, tmp_path / "run"))


def evaluations(run: RunFolder) -> list[dict[str, Any]]:
    found = read_json(run.result)["evaluations"]
    assert isinstance(found, list)
    return found


def evaluate(capsys: pytest.CaptureFixture[str], run: RunFolder, *args: str) -> list[dict[str, Any]]:
    found = call(capsys, "evaluate", str(run.path), *args)
    assert found.code == 0, found.err
    return evaluations(run)


def test_the_table_and_the_card(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_json(run.result)
    found = call(capsys, "evaluate", str(run.path))
    assert found.code == 0
    after = read_json(run.result)
    entries = after.pop("evaluations")
    assert before.pop("evaluations") == []
    assert after == before  # the rest of the card stays
    assert [entry["attack"] for entry in entries] == ["natural", "pgd-20"]
    assert {entry["weights"] for entry in entries} == {"best.safetensors"}
    attacked = entries[1]
    assert (attacked["norm"], attacked["eps"], attacked["step"], attacked["steps"]) == ("linf", 0.2, 0.05, 20)
    assert "L∞ ε = 0.2" in found.out
    for entry in entries:
        low, high = entry["interval95"]
        row = next(line for line in found.out.splitlines() if line.startswith(f"│ {entry['attack']} "))
        shown = [word.strip() for word in row.split("│")[2:5]]
        assert shown == [f"{entry['accuracy']:.2%}", f"{low:.2%} – {high:.2%}", "40"]
        assert low <= entry["accuracy"] <= high


@pytest.mark.parametrize("weights", ["best", "last"])
def test_the_numbers_are_those_of_the_weights(weights: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    entries = evaluate(capsys, run, "--weights", weights, "--attacks", "natural", "fgsm", "--exact")
    model = build_model(CONFIG, splits(DIGITS).spec, CPU)
    load_weights(model, run.path / f"{weights}.safetensors")
    fgsm = PGD(eps=0.2, step=0.2, steps=1, start="none")
    expected = [accuracy(model, splits(DIGITS).test, attack).accuracy for attack in (None, fgsm)]
    assert [entry["accuracy"] for entry in entries] == expected
    assert expected[0] > expected[1] > 0.1  # better than chance, else the test could not detect a difference


def test_options(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    args = ["--attacks", "pgd-3", "--n", "17", "--eps", "0.1", "--step", "1/50", "--json", str(file)]
    (entry,) = evaluate(capsys, run, *args)
    result = json.loads(file.read_text())["attacks"]["pgd-3"]
    assert (result["eps"], result["step"], result["steps"], result["n"]) == (0.1, 0.02, 3, 17)
    assert entry == entry | result


def test_a_custom_network_without_normalisation_gets_a_hint(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A public checkpoint that expects normalised inputs would be measured wrong without a hint."""
    weights = tmp_path / "theirs.pt"
    torch.save(LeNet().state_dict(), weights)
    network = ("--model", "tests.support.networks:LeNet", "--data", "digits")
    found = call(capsys, "evaluate", str(weights), *network, "--attacks", "natural", "--n", "5")
    assert found.code == 0, found.err
    assert "uiat.Normalized" in found.err
    found = call(capsys, "evaluate", str(run.path), "--attacks", "natural", "--n", "5")
    assert "uiat.Normalized" not in found.err


def test_so_does_one_that_an_import_registers(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @dataclass(frozen=True)
    class Theirs:
        def build(self, data: DataSpec) -> torch.nn.Module:
            return LeNet()

    monkeypatch.setitem(MODELS, "theirs", Theirs())
    weights = tmp_path / "theirs.pt"
    torch.save(LeNet().state_dict(), weights)
    flags = ("--data", "digits", "--attacks", "natural", "--n", "5")
    found = call(capsys, "evaluate", str(weights), "--model", "theirs", *flags)
    assert found.code == 0, found.err
    assert "uiat.Normalized" in found.err
    bundled = call(capsys, "evaluate", str(run.best), "--model", "resnet8", *flags)
    assert "uiat.Normalized" not in bundled.err


def test_an_export_was_trained_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its network got images in [0, 1] in training, too."""
    config = replace(tiny("sat"), model=Imported("tests.support.networks:LeNet"))
    begin(config, tmp_path / "run")
    network = ("--model", "tests.support.networks:LeNet")
    exported = call(capsys, "export", str(tmp_path / "run"), *network)
    assert exported.code == 0, exported.err
    found = call(capsys, "evaluate", str(tmp_path / "run" / "export"), *network, "--attacks", "natural", "--n", "5")
    assert found.code == 0, found.err
    assert "uiat.Normalized" not in found.err


def test_the_step_follows_the_radius(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = evaluate(capsys, run, "--attacks", "pgd-1", "--eps", "8/255")
    assert entry["step"] == 2 / 255


def test_another_setting_adds_and_the_same_replaces(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(capsys, run, "--attacks", "natural", "pgd-2")
    evaluate(capsys, run, "--attacks", "pgd-2", "--eps", "0.1")
    entries = evaluate(capsys, run, "--attacks", "pgd-2")
    found = [(entry["attack"], entry.get("eps")) for entry in entries]
    assert sorted(found, key=str) == [("natural", None), ("pgd-2", 0.1), ("pgd-2", 0.2)]


def test_a_larger_radius_is_a_stronger_attack(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for eps in ("0", "0.2", "0.6"):
        entries = evaluate(capsys, run, "--eps", eps, "--attacks", "pgd-10")
    (natural,) = [e for e in evaluate(capsys, run, "--attacks", "natural") if e["attack"] == "natural"]
    robust = [entry["accuracy"] for entry in entries]
    assert natural["accuracy"] == robust[0] > robust[1] > robust[2]


@pytest.mark.parametrize(
    ("args", "facts"),
    [
        ("--n 41", "--n 41 40"),
        ("--eps -0.1", "--eps -0.1"),
        ("--eps nan", "--eps nan"),
        ("--attacks pdg-20", "pdg-20 pgd-20"),
        ("--attacks natral", "natral natural"),
        ("--attacks autoatack", "autoatack autoattack"),
        ("--batch-size 0", "--batch-size 0"),
        ("--device gpu", "device gpu"),
        ("--model.activation silu", "omit --model.activation"),
        ("--model.mean 0.5 --model.std 0.5", "omit --model.mean"),
    ],
)
def test_bad_options(args: str, facts: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert missing_facts(stopped(capsys, "evaluate", str(run.path), *args.split()), facts) == []
    assert evaluations(run) == []


def test_bad_places(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "no" / "such" / "file.json")
    for option in ("--json", "--save-adversaries"):
        assert f"cannot write {file}" in stopped(capsys, "evaluate", str(run.path), option, file)
    run.best.write_bytes(b"damaged")
    assert "not a readable safetensors file" in stopped(capsys, "evaluate", str(run.path))
    run.best.unlink()
    assert f"{run.path} has no best.safetensors" in stopped(capsys, "evaluate", str(run.path))
    assert "is not a run folder" in stopped(capsys, "evaluate", str(tmp_path))
    assert f"there is no {tmp_path / 'nothing'}" in stopped(capsys, "evaluate", str(tmp_path / "nothing"))


OWN_NETWORKS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, outputs=10, side=8, output=lambda logits: logits):
        super().__init__()
        self.layers, self.output = nn.Sequential(nn.Flatten(), nn.Linear(side * side, outputs)), output

    def forward(self, x):
        return self.output(self.layers(x))

def good(): return Net()
def five(): return Net(outputs=5)
def pair(): return Net(output=lambda logits: (logits, logits))
def large(): return Net(side=16)
"""


@pytest.mark.parametrize(
    ("network", "facts"),
    [
        ("five", "5 logits 10 outputs"),
        ("pair", "evaluation tuple logits"),
        ("large", "evaluation '(2, 1, 8, 8)' RuntimeError"),
        ("good", ""),
    ],
)
def test_a_custom_network_is_tried_first(
    network: str, facts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"own_{network}"
    Path(f"{module}.py").write_text(OWN_NETWORKS)
    torch.save(getattr(import_module(module), network)().state_dict(), "weights.pt")
    args = ["evaluate", "weights.pt", "--model", f"{module}:{network}", "--data", "digits", "--n", "8"]
    if not facts:
        assert call(capsys, *args).code == 0
        return
    found = stopped(capsys, *args)
    assert missing_facts(found, f"{module}:{network} {facts}") == []


def test_a_run_that_cannot_be_written(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--json` names another file for the result; an interrupted evaluation keeps its state in the cache folder."""
    access = os.access
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != run.path and access(path, mode))
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    args = ("evaluate", str(run.path), "--attacks", "natural", "--n", "4")
    message = stopped(capsys, *args)
    assert str(run.path) in message
    assert "--json" in message
    found = call(capsys, *args, "--json", str(tmp_path / "result.json"))
    assert found.code == 0, found.err
    assert found.err.count(f"{run.path} cannot be written") == 1
    assert read_json(tmp_path / "result.json")["attacks"]["natural"]["n"] == 4
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before
    small = ("--attack", "pgd-1", "--grid", "0", "0.1", "--n", "4", "--out", str(tmp_path / "curves"))
    assert call(capsys, "curves", str(run.path), *small).code == 0
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before
    assert list((tmp_path / "cache").rglob("evaluations"))
