"""`uiat curves`."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from tests.support.calls import call, missing_facts, refused
from tests.support.uiat_run import DATA, EPS, trained
from uiat.evaluation.intervals import wilson
from uiat.runs.run_folder import RunFolder, read_json

FAST = ("--attack", "pgd-3", "--n", "40")
GRID = ("--grid", "-0.2", "0", "0.2")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.open(shutil.copytree(trained().path, tmp_path / "run"))


def curves(capsys: pytest.CaptureFixture[str], run: RunFolder, *args: str) -> dict[str, Any]:
    found = call(capsys, "curves", str(run.path), *FAST, *args)
    assert found.code == 0, found.err
    content = read_json(run.path / "curves" / "curves.json")
    assert isinstance(content, dict)
    return content


def test_the_default_grid_and_the_files(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    content = curves(capsys, run)
    assert content["grid"] == pytest.approx([EPS * k / 4 for k in range(-4, 9)])
    assert {path.name for path in (run.path / "curves").iterdir()} == {
        *(f"curves.{end}" for end in ("json", "csv", "png", "svg")),
    }
    assert content["images"] == {"all": 40, "easier": 20, "harder": 20}
    assert (content["n"], content["attack"], content["norm"], content["data"]) == (40, "pgd-3", "linf", "digits")
    assert content["environment"]["versions"]["torch"]
    values = content["accuracy"]
    for k, eps in enumerate(content["grid"]):
        assert 2 * values["all"][k] == pytest.approx(values["easier"][k] + values["harder"][k])
        assert content["gap"][k] == values["easier"][k] - values["harder"][k]
        for name, n in content["images"].items():
            assert content["interval95"][name][k] == list(wilson(round(values[name][k] * n), n))
        setting = content["perturbations"][k]
        assert setting["kind"] == ("inverse" if eps < 0 else "pgd-3" if eps > 0 else "natural")
        assert setting.get("eps", 0) == abs(eps)
    assert content["gap_at_eps"] == {"eps": EPS, "gap": content["gap"][8]}
    assert list(run.path.glob("evaluation-*")) == []  # finished, so there is nothing to resume
    assert float(imread(run.path / "curves" / "curves.png")[..., :3].std()) > 0.02


def test_json_and_csv_agree(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    content = curves(capsys, run, *GRID)
    with (run.path / "curves" / "curves.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["eps"]) for row in rows] == content["grid"]
    assert [row["perturbation"] for row in rows] == ["inverse", "natural", "pgd-3"]
    assert [float(row["gap"]) for row in rows] == content["gap"]
    for name in ("all", "easier", "harder"):
        assert [float(row[name]) for row in rows] == content["accuracy"][name]
        assert [[float(row[f"{name}_low"]), float(row[f"{name}_high"])] for row in rows] == content["interval95"][name]


def test_the_table_says_the_same(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "curves", str(run.path), *FAST, *GRID)
    content = read_json(run.path / "curves" / "curves.json")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in found.out.splitlines() if line.startswith("│")]
    assert [row[:2] for row in rows] == [["−0.2", "inverse"], ["0", "natural"], ["0.2", "pgd-3"]]
    for k, row in enumerate(rows):
        values = [content["accuracy"][name][k] for name in ("all", "easier", "harder")]
        assert row[2:] == [f"{value:.2%}" for value in (*values, content["gap"][k])]
    assert f"written: {run.path / 'curves'}" in found.out


def test_the_numbers_are_those_of_evaluate(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = curves(capsys, run, *GRID)
    file = tmp_path / "result.json"
    args = ["--n", "40", "--attacks", "natural", "pgd-3", "--json", str(file)]
    assert call(capsys, "evaluate", str(run.path), *args).code == 0
    expected = json.loads(file.read_text())["attacks"]
    assert content["accuracy"]["all"][1:] == [expected[name]["accuracy"] for name in ("natural", "pgd-3")]


def test_negative_fractions(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    expected = [-8 / 255, 0, 8 / 255]
    assert curves(capsys, run, "--grid", "-8/255", "0", "8/255", "--seed", "1")["grid"] == expected
    assert curves(capsys, run, "--grid=-8/255", "8/255", "0")["grid"] == expected


def test_against_another_run(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = shutil.copytree(run.path, tmp_path / "other")
    content = curves(capsys, run, *GRID, "--against", str(other), "--weights", "last")
    found = read_json(run.path / "curves" / "difference.json")
    assert found["grid"] == content["grid"]
    assert found["difference"] == [0, 0, 0]  # the same network
    assert found["accuracy"] == dict.fromkeys(("target", "against"), content["accuracy"]["all"])
    assert (found["target"], found["against"]["target"]) == ("run", "other")
    for low, high in found["interval95"]:
        assert low < 0 < high
    for end in ("png", "svg"):
        assert (run.path / "curves" / f"difference.{end}").stat().st_size > 1000


def test_an_interrupted_measurement_resumes(
    run: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = curves(capsys, run, *GRID)
    shutil.rmtree(run.path / "curves")
    args = ["curves", str(run.path), *FAST, *GRID]
    with monkeypatch.context() as patch:
        patch.setattr("uiat.cli.curves.write_curves", interrupt)
        assert call(capsys, *args).code == 130
    assert len(list(run.path.glob("evaluation-*"))) == 1
    found = call(capsys, *args)
    assert "resuming an interrupted measurement" in found.err
    assert read_json(run.path / "curves" / "curves.json")["accuracy"] == whole["accuracy"]
    assert list(run.path.glob("evaluation-*")) == []


def interrupt(*args: object) -> None:
    raise KeyboardInterrupt


def test_bare_weights(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    network = ("--model", "resnet8", "--model.width", "8", "--model.blocks", "1", "1", "--data", "digits")
    found = call(capsys, "curves", str(run.best), *network, *FAST, "--grid", "0", "8/255")
    assert found.code == 0, found.err
    content = read_json(Path("curves/curves.json"))
    assert content["gap_at_eps"]["eps"] == 8 / 255
    assert content["weights"] == "best.safetensors"


@pytest.mark.parametrize(
    ("args", "facts"),
    [
        ("--attack pdg-20", "pdg-20 pgd-20"),
        ("--attack natural", "'--attack natural' pgd-20"),
        ("--grid", "empty --grid -8/255"),
        ("--grid 0 nan", "grid nan finite"),
        ("--eps 0", "0 --eps --grid"),
        ("--n 121", f"--n 121 1 {DATA.test_subset}"),
        ("--n 1 --grid 0", "--n 2"),
        ("--against nowhere", "nowhere"),
    ],
)
def test_bad_options(args: str, facts: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert missing_facts(refused(capsys, "curves", str(run.path), *args.split()), facts) == []
    assert not (run.path / "curves").exists()


def test_bad_places(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not a run folder" in refused(capsys, "curves", str(tmp_path))
    assert "needs a run folder or a weights file" in refused(capsys, "curves")
    assert "there is no" in refused(capsys, "curves", str(tmp_path / "nothing"))
    (tmp_path / "file").write_text("")
    assert "cannot write the folder" in refused(capsys, "curves", str(run.path), "--out", str(tmp_path / "file" / "a"))
    other = RunFolder.open(shutil.copytree(run.path, tmp_path / "other"))
    config = read_json(other.config)
    config["data"]["name"] = "svhn"
    other.config.write_text(json.dumps(config))
    assert "give a run with data." in refused(capsys, "curves", str(run.path), "--against", str(other.path))
