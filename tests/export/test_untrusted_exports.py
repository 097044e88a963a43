"""Untrusted exports: no code runs, sizes are checked before memory is allocated, each error is one message."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import uiat
from tests.faults.test_hostile_files import ABSURD
from tests.support.calls import call, missing_facts, refused
from tests.support.exports import FAMILIES, GREY, make_run
from uiat import UserError
from uiat.export.exported_folder import write_folder
from uiat.export.loaded_run import load_run
from uiat.export.model_card import HubCard
from uiat.runs.run_folder import read_json


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export")
    run, _ = make_run(out / "run", *FAMILIES["resnet"])
    write_folder(load_run(run.path, "best", None), out / "hub", hub=HubCard())
    return out / "hub"


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((original / name).read_bytes())
    return tmp_path


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"kind": "ResNet"}
    for _ in range(depth):
        value = {"kind": "ResNet", "width": value}
    return value


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown": (lambda c: c["network"].update(kind="os.system"), "network os.system"),
    "a method": (lambda c: c["network"].update(kind="UIAT"), "network UIAT"),
    "no kind": (lambda c: c["network"].pop("kind"), "network None"),
    "kind is a list": (lambda c: c["network"].update(kind=["ResNet"]), "config.json network"),
    "long kind": (lambda c: c["network"].update(kind="x" * 9999), "network"),
    "other option": (lambda c: c["network"].update(evil=1), "field evil"),
    "deep": (lambda c: c.update(network=nested(400)), "config.json"),
    "no network": (lambda c: c.pop("network"), "network KeyError"),
    "network is a list": (lambda c: c.update(network=[1]), "config.json network"),
    "wide": (lambda c: c["network"].update(width=10**9), "width 10000"),
    "wide as a float": (lambda c: c["network"].update(width=1e300), "ResNet.width 1e+300 int"),
    "terabytes": (lambda c: c["network"].update(width=10_000, blocks=[1] * 12), "'another network'"),
    "too many bytes to count": (lambda c: c["network"].update(width=10_000, blocks=[1] * 60), "built"),
    "endless": (lambda c: c["network"].update(blocks=[9999] * 9999), "blocks"),
    "negative": (lambda c: c["network"].update(width=-4), "width -4"),
    "width is text": (lambda c: c["network"].update(width="x"), "ResNet.width x int"),
    "width is a list": (lambda c: c["network"].update(width=[4]), "ResNet.width '(4,)' int"),
    "other width": (lambda c: c["network"].update(width=5), "'another network'"),
    "more blocks": (lambda c: c["network"].update(blocks=[2, 2]), "'another network'"),
    "other activation": (lambda c: c["network"].update(activation="evil"), "ResNet.activation evil"),
    "flat": (lambda c: c["data"].update(shape=[1, 8]), "'[1, 8]'"),
    "endless images": (lambda c: c["data"].update(shape=[1, 8, 10**12]), "shape"),
    "shape is text": (lambda c: c["data"].update(shape="abc"), "network ValueError"),
    "no classes": (lambda c: c["data"].update(classes=[]), "'0 classes'"),
    "classes is a number": (lambda c: c["data"].update(classes=10), "config.json network"),
    "no data": (lambda c: c.update(data=None), "config.json network"),
    "other norm": (lambda c: c["threat_model"].update(norm="evil"), "norm evil linf l2"),
    "eps is NaN": (lambda c: c["threat_model"].update(eps=float("nan")), "nan"),
    "eps is text": (lambda c: c["threat_model"].update(eps="x"), "config.json network"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_hostile_description(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, facts = CHANGES[kind]
    config = read_json(folder / "config.json")
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError) as error:
        uiat.load(folder)
    assert missing_facts(str(error.value), facts) == []
    assert len(str(error.value)) < 600
    assert len(refused(capsys, "evaluate", str(folder), "--n", "5")) < 600


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "9" * 9000, "\ud800", " " * 10_000_001, '{"kind": 3}'])
def test_what_is_no_description(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError) as error:
        uiat.load(folder)
    assert len(str(error.value)) < 600
    assert len(refused(capsys, "evaluate", str(folder))) < 600


@pytest.mark.parametrize("kind", ABSURD)
def test_absurd_weights(kind: str, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(ABSURD[kind])
    with pytest.raises(UserError, match=r"model\.safetensors"):
        uiat.load(folder)


def test_no_weights_and_a_pickle_beside_them(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"model\.safetensors"):
        uiat.load(folder)


@pytest.mark.parametrize("name", ["stranger_data:load", "/etc", "data.npz", "nothing"])
def test_data_that_only_the_export_names(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "stranger_data.py").write_text("raise SystemExit('harm')")
    monkeypatch.chdir(folder)
    config = read_json(folder / "config.json")
    (folder / "config.json").write_text(json.dumps({**config, "data": {**config["data"], "name": name}}))
    message = refused(capsys, "evaluate", str(folder))
    assert "not known here" in message
    assert "--data" in message
    assert "stranger_data" not in sys.modules
    names = [str(k) for k in range(GREY.num_classes)]
    config["data"].update(name=name, classes=names)
    (folder / "config.json").write_text(json.dumps(config))
    assert call(capsys, "evaluate", str(folder), "--data", "digits", "--n", "5").code == 0
