"""`uiat train --dry-run` prints the cost of a run, and creates no files."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.support.calls import Call, call, missing_facts, refused
from tests.support.runs import CPU, TINY, begin, splits, tiny
from uiat.bench import cost_estimate
from uiat.bench.cost_estimate import estimate_run
from uiat.config import AWP, AnyConfig, Averaging
from uiat.data.data_config import DataConfig
from uiat.runs.run_folder import read_json


def files(folder: Path) -> list[str]:
    """Return all files of a folder, except those that torch creates on a first import."""
    return sorted(str(path) for path in folder.rglob("*") if not path.name.startswith("torchinductor_"))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with sub-folders for data and temporary files."""
    for name, variable in (("data", "UIAT_DATA"), ("temporary", "TMPDIR")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def facts(found: Call) -> dict[str, str]:
    """Return the printed facts about the run, by name."""
    assert found.code == 0, found.err
    lines = found.out.partition("\nrun\n")[2].splitlines()
    return {line[2:13].strip(): line[13:] for line in lines if re.match(r"  \w", line)}


def numbers(text: str) -> list[float]:
    return [float(word.replace(",", "")) for word in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def test_what_it_says_is_what_the_run_takes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["train", "digits-resnet8-uiat-oneoff", *TINY, "--out", "run"]
    before = files(place)
    found = call(capsys, *args, "--dry-run")
    assert files(place) == before
    assert found.err == ""
    said = facts(found)
    assert said["folder"] == "run, not created"
    assert call(capsys, *args).code == 0
    card = read_json(place / "run" / "result.json")
    assert numbers(said["network"])[0] == card["parameters"]
    assert numbers(said["steps"]) == [12, 3, 4]
    assert numbers(said["in all"]) == list(card["training_passes"].values())
    assert re.fullmatch(r"about \d+:\d\d:\d\d: an estimate .* for one process on cpu", said["time"])
    assert numbers(said["memory"])[0] > 0
    saved = read_json(place / "run" / "config.json")
    settings = dict(line.split(maxsplit=1) for line in found.out.partition("\nrun\n")[0].splitlines()[1:])
    assert settings["method.attack.eps"] == str(saved["method"]["attack"]["eps"])
    assert settings["data.subset"] == "72"
    assert settings["model.width"] == "4"


@pytest.mark.parametrize("method", ["natural", "trades", "gradalign", "hat"])
def test_passes_are_those_of_a_run(method: str, place: Path) -> None:
    plan = {"averaging": Averaging(enabled=True), "awp": AWP(enabled=True, warmup=1)} if method == "trades" else {}
    config = tiny(method, **plan)
    card = read_json(begin(config, place / "run").result)
    found = estimate_run(config, splits(config.data), CPU)
    assert found.passes == pytest.approx(card["training_passes"])
    assert (found.parameters, found.seconds > 0) == (card["parameters"], True)


def test_memory_is_of_what_is_there() -> None:
    def memory(config: AnyConfig) -> dict[str, int]:
        return estimate_run(config, splits(config.data), CPU).memory

    plain, doubled = memory(tiny("uiat")), memory(tiny("uiat", averaging=Averaging(enabled=True)))
    weights = sum(t.nbytes for t in tiny("uiat").model.build(splits().spec).state_dict().values())
    assert plain["weights"] == weights
    assert doubled["weights"] == pytest.approx(2 * weights, rel=0.01)
    trained = sum(p.nbytes for p in tiny("uiat").model.build(splits().spec).parameters())
    assert plain["optimiser"] == trained  # one momentum for each parameter
    assert plain["method"] >= 60 * 10 * 4  # the table of p
    assert plain["images"] == 60 * 8 * 8
    assert memory(tiny("uiat", micro_batch=4))["a step"] < plain["a step"]


def test_a_helper_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    said = facts(call(capsys, "train", "digits-resnet8-hat", *TINY, "--method.helper-epochs", "2", "--dry-run"))
    assert numbers(said["helper"])[:4] == [8, 120, 0, 120]
    assert "natural" not in said["time"]


def test_data_that_is_not_downloaded(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shorter = ["--train.epochs", "2", "--model.width", "2", "--method.attack.steps", "1"]
    before = files(place)
    found = call(capsys, "train", "cifar10-resnet8-sat", *shorter, "--dry-run", "--device", "cpu")
    assert files(place) == before
    assert "cifar10 is not downloaded" in found.err
    assert numbers(facts(found)["images"])[:2] == [20_000 - 1024, 1024]


def test_custom_images_in_a_dry_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k in range(30):
        (place / "photos" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (8 * k, 0, 0)).save(place / "photos" / "ab"[k % 2] / f"{k}.png")
    before = files(place)
    found = call(capsys, "train", "--data", "photos", "--train.epochs", "1", "--model.width", "2", "--dry-run")
    assert files(place) == before
    assert numbers(facts(found)["images"]) == [22, 2, 3, 8, 8]


def test_large_networks_are_tried_with_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny("sat")
    whole = estimate_run(config, splits(config.data), CPU)
    monkeypatch.setattr(cost_estimate, "LARGE", 10)
    part = estimate_run(config, splits(config.data), CPU)
    assert (whole.rows, part.rows) == (16, 8)
    assert part.passes == whole.passes
    assert part.memory["a step"] == pytest.approx(whole.memory["a step"], rel=0.5)


def test_a_mistake_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["train", "digits-resnet8-sat", *TINY, "--dry-run"]
    assert "nowhere.pt" in refused(capsys, *args, "--init", "nowhere.pt")
    assert missing_facts(refused(capsys, *args, "--data.subset", "99999"), "data.subset 99999") == []


def test_a_batch_larger_than_the_data() -> None:
    config = replace(tiny("uiat", batch_size=500), data=DataConfig(name="digits", subset=72, validation=12))
    found = estimate_run(config, splits(config.data), CPU)
    assert (found.rows, found.steps) == (60, 1)
    assert isinstance(found.seconds, float)
    assert torch.tensor(list(found.passes.values())).gt(0).all()
