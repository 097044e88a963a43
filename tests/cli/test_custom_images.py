"""A custom folder of images and a custom network through every command; what a run records about its data."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.calls import call, missing_facts, refused
from tests.support.data_files import fill, picture
from uiat.runs.run_folder import RunFolder

SMALL = ["--train.epochs", "1", "--validate.steps", "1"]
CLASSES = ["[bold]blue", "green $x$", "red & <b>"]
"""Names that a table, a figure or a page could take for something else."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "160")
    fill(tmp_path / "mine", dict.fromkeys(CLASSES, 10))
    return tmp_path


NETWORKS = {
    "resnet8": ["--model.width", "2"],
    "preactresnet18": ["--model.width", "2", "--model.blocks", "1", "1", "1"],
    "wrn-10-1": [],
}


@pytest.mark.parametrize("network", NETWORKS)
def test_images_of_64_by_48_through_every_command(network: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--data", "./mine", "--model", network, *NETWORKS[network], *SMALL, "--out", "run"]
    assert call(capsys, "train", *args).code == 0
    found = call(capsys, "evaluate", "run", "--attacks", "natural", "pgd-2", "--per-class")
    assert found.code == 0
    assert all(name in found.out for name in CLASSES)
    card = json.loads(Path("run/result.json").read_text(encoding="utf-8"))
    assert card["data"]["classes"] == CLASSES
    assert card["data"]["shape"] == [3, 48, 64]
    assert list(card["evaluations"][0]["per_class"]) == CLASSES
    assert call(capsys, "curves", "run", "--grid", "0", "8/255", "--attack", "pgd-1").code == 0
    found = call(capsys, "inverse", "run", "--passes", "1")
    assert found.code == 0
    assert all(name in found.out for name in CLASSES)
    assert Path("run/inverse/inverse.png").is_file()
    assert call(capsys, "export", "run").code == 0
    readme = Path("run/export/README.md").read_text(encoding="utf-8")
    assert "The classes, in the order of the logits: `[bold]blue`, `green $x$`, `red & <b>`." in readme
    assert json.loads(Path("run/export/card.json").read_text(encoding="utf-8"))["data"]["classes"] == CLASSES


def test_the_recipe_follows_the_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "train", "--data", "mine", "--model.width", "2", *SMALL).code == 0
    config = RunFolder("runs/own-resnet8-n-fgsm-uiat-s0").read_config()
    assert config.method.attack.eps == 8 / 255  # type: ignore[union-attr]
    assert "no data set is given: give --data" in refused(capsys, "train", "own-resnet8-uiat", "--out", "x")
    assert not Path("x").exists()


def begun(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--data", "mine", "--model.width", "2", *SMALL, "--out", "run"]
    assert call(capsys, "train", *args).code == 0


@pytest.mark.parametrize("change", ["another image", "other pixels", "a class more"])
def test_a_run_does_not_resume_with_other_data(change: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(capsys)
    if change == "another image":
        picture(0, 77).save(here / "mine" / CLASSES[0] / "new.png")
    elif change == "other pixels":
        for path in (here / "mine" / CLASSES[1]).iterdir():
            picture(0, 5).save(path)
    else:
        fill(here / "mine", {"aaa": 10})
    message = refused_after_packing(capsys, "train", "--resume", "run")
    assert missing_facts(message, "1 'green $x$' aaa" if change == "a class more" else "changed") == []


def refused_after_packing(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    found = call(capsys, *args)
    assert (found.code, found.out) == (2, "")
    return found.err.splitlines()[-1]


def test_a_run_resumes_when_only_the_path_of_its_data_changed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(capsys)
    shutil.rmtree(here / "store")
    assert call(capsys, "train", "--resume", "run").code == 0


def test_a_run_is_not_measured_on_other_classes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(capsys)
    fill(here / "other", {CLASSES[0]: 10, CLASSES[1]: 10, "zebra": 10})
    message = refused(capsys, "evaluate", "run", "--data", "other")
    assert missing_facts(message, "run other 2 'red & <b>' zebra") == []
    fill(here / "fewer", dict.fromkeys(CLASSES[:2], 10))
    assert "(3 and 2 of them)" in refused(capsys, "evaluate", "run", "--data", "fewer")
    fill(here / "same", dict.fromkeys(CLASSES, 10))
    assert call(capsys, "evaluate", "run", "--data", "same", "--attacks", "natural").code == 0


def test_a_run_of_an_earlier_version_is_taken_at_its_word(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(capsys)
    Path("run/data.json").unlink()
    assert call(capsys, "evaluate", "run", "--attacks", "natural").code == 0
    assert call(capsys, "train", "--resume", "run").code == 0
    assert Path("run/data.json").is_file()  # it is recorded from now on


def test_a_file_beside_the_user_is_importable(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("beside_net.py").write_text(
        "from torch import nn\n\n"
        "def build(num_classes, in_channels):\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * in_channels, num_classes))\n"
    )
    args = ["--data", "mine", "--model", "beside_net:build", *SMALL, "--out", "run"]
    assert call(capsys, "train", *args).code == 0
    assert call(capsys, "evaluate", "run", "--model", "beside_net:build").code == 0
    assert "cannot import 'beside_nett'" in refused(
        capsys, "train", "--data", "mine", "--model", "beside_nett:build", "--out", "x"
    )
