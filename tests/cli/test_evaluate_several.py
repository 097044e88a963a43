"""`uiat evaluate A B C`: one table, one card per run; if one network fails, the others are kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.calls import call, refused, stopped
from tests.support.runs import begin, splits, tiny
from uiat.models import ResNet
from uiat.runs.run_folder import RunFolder, read_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, and weights of another network."""
    folder = tmp_path_factory.mktemp("several")
    for name in ("first", "second"):
        begin(replace(tiny("sat", epochs=1), seed=len(name)), folder / name)
    network = ResNet(blocks=(1, 1, 1), width=4).build(splits().spec)
    torch.save(network.state_dict(), folder / "weights.pt")
    return folder


FLAGS = ("--attacks", "natural", "fgsm", "--n", "20")


def test_one_table_and_every_card(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    found = call(capsys, "evaluate", "first", "second", "first", *FLAGS, "--json", "out.json")
    assert found.code == 0, found.err
    cards = read_json(folder / "out.json")
    assert isinstance(cards, list)
    assert [card["target"] for card in cards] == ["first", "second"]
    rows = [[word.strip() for word in line.split("│")[1:-1]] for line in found.out.splitlines() if "│" in line]
    assert [row[:2] for row in rows] == [[attack, run] for attack in ("natural", "fgsm") for run in ("first", "second")]
    for card in cards:
        run = RunFolder.open(card["target"])
        entries = {entry["attack"]: entry for entry in read_json(run.result)["evaluations"]}
        for name, entry in card["attacks"].items():
            assert entries[name]["accuracy"] == entry["accuracy"]
            shown = next(row for row in rows if row[:2] == [name, card["target"]])
            assert shown[3] == f"{entry['accuracy']:.2%}"
    assert "uiat compare first second" in found.out.splitlines()[-1]


def test_a_network_named_twice_is_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    found = call(capsys, "evaluate", "first", "first", "--attacks", "natural", "--n", "5", "--json", "out.json")
    assert found.code == 0, found.err
    assert isinstance(read_json(folder / "out.json"), dict)


def test_one_that_fails_does_not_lose_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "broken").mkdir(exist_ok=True)
    found = call(capsys, "evaluate", "broken", "first", "missing", "weights.pt", *FLAGS, "--json", "out.json")
    assert found.code == 2
    assert "Traceback" not in found.err
    for name in ("broken", "missing", "weights.pt"):
        assert f"uiat: {name}: " in found.err
    assert "first" in found.out
    cards = {card["target"]: card for card in read_json(folder / "out.json")}
    assert list(cards) == ["first", "broken", "missing", "weights.pt"]
    assert 0 <= cards["first"]["attacks"]["fgsm"]["accuracy"] <= 1
    assert "--model" in cards["weights.pt"]["error"]


def test_flags_apply_to_all(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    torch.save(ResNet(blocks=(1, 1, 1), width=8).build(splits().spec).state_dict(), "wide.pt")
    network = ("--model", "resnet8", "--model.width", "4", "--data", "digits")
    found = call(capsys, "evaluate", "wide.pt", "weights.pt", *network, *FLAGS)
    assert found.code == 2
    assert "uiat: wide.pt: wide.pt: 'conv1.weight' has shape (8, 1, 3, 3)" in found.err
    assert "weights.pt" in found.out
    assert "wide.pt" not in found.out
    found = call(capsys, "evaluate", "first", "weights.pt", "--no-such-flag")
    assert (found.code, found.out) == (2, "")


def test_what_is_for_one_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    message = refused(capsys, "evaluate", "first", "second", "--save-adversaries", "x.safetensors")
    assert "--save-adversaries" in message
    assert "unknown attack" in stopped(capsys, "evaluate", "first", "second", "--attacks", "pgdd-2")
