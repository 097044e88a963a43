"""`uiat evaluate`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calls import call, refused
from tests.engine.runs import CPU, begin, splits, tiny
from uiat.attacks import PGD
from uiat.engine.run import RunFolder, read_json
from uiat.engine.setup import build_model
from uiat.engine.weights import load_weights
from uiat.evaluation.accuracy import accuracy

CONFIG = tiny("uiat", epochs=6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return begin(CONFIG, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(trained: RunFolder, tmp_path: Path) -> RunFolder:
    return RunFolder.open(shutil.copytree(trained.path, tmp_path / "run"))


def evaluations(run: RunFolder) -> dict[str, Any]:
    found = read_json(run.result)["evaluations"]
    assert isinstance(found, dict)
    return found


def test_the_table_and_the_card(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_json(run.result)
    found = call(capsys, "evaluate", str(run.path))
    assert found.code == 0
    after = read_json(run.result)
    entry = after.pop("evaluations")["best/linf/0.2"]
    assert before.pop("evaluations") == {}
    assert after == before  # the rest of the card stays
    assert list(entry["attacks"]) == ["natural", "pgd-20"]
    assert (entry["weights"], entry["split"], entry["norm"], entry["eps"], entry["step"]) == (
        *("best", "test", "linf", 0.2, 0.05),
    )
    assert "best weights, L∞ ε = 0.2" in found.out
    for name, result in entry["attacks"].items():
        low, high = result["interval95"]
        row = next(line for line in found.out.splitlines() if line.startswith(f"│ {name} "))
        assert [word.strip() for word in row.split("│")[2:5]] == [
            *(f"{result['accuracy']:.2%}", f"{low:.2%} – {high:.2%}", "40"),
        ]
        assert low <= result["accuracy"] <= high


@pytest.mark.parametrize("weights", ["best", "last"])
def test_the_numbers_are_those_of_the_weights(weights: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--weights", weights, "--attacks", "natural", "fgsm"]
    assert call(capsys, "evaluate", str(run.path), *words).code == 0
    model = build_model(CONFIG, splits().spec, CPU)
    load_weights(model, run.path / f"{weights}.safetensors")
    fgsm = PGD(eps=0.2, step=0.2, steps=1, start="none")
    expected = [accuracy(model, splits().test, enemy).value for enemy in (None, fgsm)]
    entry = evaluations(run)[f"{weights}/linf/0.2"]["attacks"]
    assert [entry[name]["accuracy"] for name in ("natural", "fgsm")] == expected
    assert expected[0] > 0.2  # better than chance, so that the test can tell


def test_options(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    words = ["--attacks", "pgd-3", "--n", "17", "--eps", "0.1", "--step", "1/50", "--json", str(file)]
    assert call(capsys, "evaluate", str(run.path), *words).code == 0
    result = json.loads(file.read_text())
    assert (result["eps"], result["step"]) == (0.1, 0.02)
    assert result["attacks"]["pgd-3"]["n"] == 17
    assert evaluations(run) == {"best/linf/0.1": result}


def test_the_step_follows_the_radius(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "evaluate", str(run.path), "--attacks", "pgd-1", "--eps", "8/255").code == 0
    assert evaluations(run)["best/linf/8/255"]["step"] == 2 / 255


def test_a_second_evaluation_adds_to_the_first(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for attack in ("natural", "pgd-2"):
        assert call(capsys, "evaluate", str(run.path), "--attacks", attack).code == 0
    assert list(evaluations(run)["best/linf/0.2"]["attacks"]) == ["natural", "pgd-2"]


def test_a_larger_radius_is_a_stronger_attack(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for eps in ("0", "0.1", "0.5"):
        assert call(capsys, "evaluate", str(run.path), "--eps", eps, "--attacks", "natural", "pgd-10").code == 0
    found = [entry["attacks"] for entry in evaluations(run).values()]
    robust = [attacks["pgd-10"]["accuracy"] for attacks in found]
    assert robust[0] == found[0]["natural"]["accuracy"]
    assert robust[0] > robust[1] > robust[2]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--n 41", "--n is 41, but the test set has 40 images."),
        ("--n 0", "--n is 0, but the test set has 40 images."),
        ("--eps -0.1", "ε is -0.1, but a radius is a number from 0 on."),
        ("--eps nan", "ε is nan, but a radius is a number from 0 on."),
        ("--attacks pdg-20", "unknown attack 'pdg-20': did you mean 'pgd-20'?"),
        ("--attacks natral", "unknown attack 'natral': did you mean 'natural'?"),
        ("--batch-size 0", "the batch size is 0: give at least 1."),
        ("--device gpu", "the device 'gpu' cannot be used here: give --device cpu, or leave it out."),
    ],
)
def test_bad_options(words: str, sentence: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "evaluate", str(run.path), *words.split()) == sentence
    assert evaluations(run) == {}


def test_bad_places(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json = str(tmp_path / "no" / "such" / "file.json")
    assert f"cannot write {json}" in refused(capsys, "evaluate", str(run.path), "--n", "5", "--json", json)
    run.best.write_bytes(b"damaged")
    assert "not a readable safetensors file" in refused(capsys, "evaluate", str(run.path))
    run.best.unlink()
    assert f"there are no weights at {run.best}" in refused(capsys, "evaluate", str(run.path))
    assert "is not a run folder" in refused(capsys, "evaluate", str(tmp_path))
