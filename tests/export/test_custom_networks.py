"""Exports of custom networks: the file is copied, or one error message says why it cannot be."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch

from tests.support.calls import call, missing_facts, refused
from tests.support.exports import GREY, images, make_run, read_logits
from uiat import UserError
from uiat.export.exported_folder import write_folder
from uiat.export.loaded_run import load_run
from uiat.models import DESCRIPTIONS, MODELS, Imported
from uiat.runs.run_folder import read_json

NETWORK = """\
from torch import nn


class Net(nn.Sequential):
    def __init__(self, shape, num_classes):
        side = shape[1] * shape[2]
        super().__init__(nn.BatchNorm2d(shape[0]), nn.Flatten(), nn.Linear(side, 16), nn.ReLU())
        self.append(nn.Linear(16, num_classes))


def by_spec(spec):
    return Net(spec.shape, spec.num_classes)


def by_number(num_classes=3):
    return Net((1, 8, 8), num_classes)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Put the file into the current folder under a name that no other test imports."""
    name = re.sub(r"\W", "_", f"own_{request.node.name}")
    (tmp_path / f"{name}.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_custom_file(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders, expected = {}, []
    for name in ("by_spec", "by_number"):
        run, logits = make_run(tmp_path / name, Imported(f"{module}:{name}"), GREY)
        assert call(capsys, "export", str(run.path), "--model", f"{module}:{name}").code == 0
        folders[run.path / "export"] = images(GREY)
        expected.append(logits)
        card = read_json(run.path / "export" / "card.json")
        assert card["self_contained"] is False
        assert card["requires"] == ["safetensors", "torch"]
        assert "network.py" in card["files"]
        assert "`network.py` is a copy" in (run.path / "export" / "README.md").read_text()
        assert (run.path / "export" / "network.py").read_text() == NETWORK
    (tmp_path / f"{module}.py").unlink()
    assert all(map(torch.equal, read_logits(folders), expected))


def test_one_that_is_normalised(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, expected = make_run(tmp_path / "run", Imported(f"{module}:by_number", mean=(0.3,), std=(0.4,)), GREY)
    assert call(capsys, "export", str(run.path), "--model", f"{module}:by_number").code == 0
    (found,) = read_logits({run.path / "export": images(GREY)})
    assert torch.equal(found, expected)


@pytest.mark.parametrize("line", ["import helper", "from helper import x", "from helper.deep import x"])
def test_a_file_that_needs_another(
    line: str, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper" / "__init__.py").write_text("x = 1\n")
    (tmp_path / "helper" / "deep.py").write_text("x = 1\n")
    path = tmp_path / f"{module}.py"
    path.write_text(f"{line}\n{NETWORK}")
    run, _ = make_run(tmp_path / "run", Imported(f"{module}:by_spec"), GREY)
    message = refused(capsys, "export", str(run.path), "--model", f"{module}:by_spec")
    assert missing_facts(message, f"{path} helper {module}:by_spec") == []
    assert not (run.path / "export").exists()
    for name in ("helper", "helper.deep"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_package(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"{module}.py").unlink()
    package = tmp_path / f"{module}_package"
    package.mkdir()
    (package / "__init__.py").write_text("from .net import by_spec\n")
    (package / "net.py").write_text(NETWORK)
    (package / "other.py").write_text(f"from {package.name}.net import by_spec\n")
    (package / "relative.py").write_text("from .net import by_spec\n")
    for name, reason in (
        (package.name, f"{package.name!r} is not a single file"),
        (f"{package.name}.other", f"other.py imports {package.name} beside it"),
        (f"{package.name}.relative", "relative.py imports relatively"),
    ):
        run, _ = make_run(tmp_path / f"run-{name}", Imported(f"{name}:by_spec"), GREY)
        assert reason in refused(capsys, "export", str(run.path), "--model", f"{name}:by_spec")
    run, logits = make_run(tmp_path / "run", Imported(f"{package.name}.net:by_spec"), GREY)
    assert call(capsys, "export", str(run.path), "--model", f"{package.name}.net:by_spec").code == 0
    assert torch.equal(read_logits({run.path / "export": images(GREY)})[0], logits)


REGISTERED = """\
from __future__ import annotations

import argparse
from dataclasses import dataclass

from torch import nn

import uiat.data as sets
from uiat import UserError
from uiat.cli import (
    main,
)
from uiat.models import DESCRIPTIONS, MODELS

SIZES = {"small": 4}
LONGEST = max(len(name) for name in MODELS)


def layers(inputs, width, data: DataSpec | None):
    if data is None:
        raise UserError("no data")
    kept = data
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.Linear(width, kept.num_classes))


@dataclass(frozen=True)
class Registered:
    width: int = SIZES["small"]
    kept: bool = False

    def build(self, data: DataSpec) -> nn.Module:
        channels, height, width = data.shape
        return layers(data.numel if self.kept else channels * height * width, self.width, data)


MODELS["NAME"] = Registered()
DESCRIPTIONS["NAME"] = "two layers"
if __name__ == "__main__":
    raise SystemExit(main(["train", "--model", "NAME"]))
"""
SCALE = """

class SCALE(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.factor = len(name)

    def forward(self, x):
        return self.factor * x
"""


@pytest.fixture
def registered(module: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a file that registers a network, and return the name of its module; the test imports it."""
    for registry in (MODELS, DESCRIPTIONS):
        monkeypatch.setitem(registry, module, None)  # so that the entry is removed after the test
    Path(f"{module}.py").write_text(REGISTERED.replace("NAME", module))
    return module


def test_a_registered_network(registered: str, tmp_path: Path) -> None:
    config = importlib.import_module(registered).Registered
    folders, expected = {}, []
    for kept in (False, True):
        run, logits = make_run(tmp_path / f"run-{kept}", config(kept=kept), GREY)
        write_folder(load_run(run.path, "best", None), run.path / "export")
        folders[run.path / "export"] = images(GREY)
        expected.append(logits)
        card = read_json(run.path / "export" / "card.json")
        assert (card["self_contained"], card["requires"]) == (True, ["safetensors", "torch"])
    Path(f"{registered}.py").unlink()
    assert all(map(torch.equal, read_logits(folders), expected))


def test_what_a_registered_network_requires(registered: str, tmp_path: Path) -> None:
    path = Path(f"{registered}.py")
    path.write_text(path.read_text().replace("import argparse", "import numpy as np"))
    run, logits = make_run(tmp_path / "run", importlib.import_module(registered).Registered(), GREY)
    write_folder(load_run(run.path, "best", None), tmp_path / "out")
    assert read_json(tmp_path / "out" / "card.json")["requires"] == ["numpy", "safetensors", "torch"]
    assert "need only numpy, safetensors and torch" in (tmp_path / "out" / "README.md").read_text()
    assert torch.equal(read_logits({tmp_path / "out": images(GREY)})[0], logits)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "kept = data\n",
            "kept = sets.load_splits and data\n",
            r"Registered does not work as one file \(AttributeError: ",
        ),
        ("import argparse", "import helper", r"imports helper beside it, so .*\.Registered cannot be exported"),
        ("nn.Flatten()", "nn.Flatten(), nn.Dropout(LONGEST / 1000)", r"\(NameError: name 'LONGEST' is not defined\)"),
        ("nn.Flatten()", "nn.Flatten(), SCALE(__name__)", r"^model\.py returns other logits than the run"),
    ],
    ids=["uses uiat", "needs a file", "constant of uiat", "other logits"],
)
def test_a_registered_network_that_cannot_be_one_file(
    old: str, new: str, message: str, registered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("helper.py").write_text("x = 1\n")
    path = Path(f"{registered}.py")
    path.write_text(path.read_text().replace(old, new) + SCALE)
    run, _ = make_run(tmp_path / "run", importlib.import_module(registered).Registered(), GREY)
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    loaded = load_run(run.path, "best", None)
    with pytest.raises(UserError, match=message):
        write_folder(loaded, tmp_path / "out")
    assert not (tmp_path / "out").exists()
