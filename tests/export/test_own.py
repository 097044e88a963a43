"""A network of one's own: its file goes along, or one sentence says why it cannot."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.cli.calls import call, refused
from tests.export.folders import GREY, images, make_run
from tests.export.readers import read_logits
from uiat import DataSpec, UserError
from uiat.export.folder import write_folder
from uiat.export.subject import load_subject
from uiat.models import MODELS, Imported
from uiat.runs.folder import read_json

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


def test_a_file_of_ones_own(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders, expected = {}, []
    for name in ("by_spec", "by_number"):
        run, logits = make_run(tmp_path / name, Imported(f"{module}:{name}"), GREY)
        assert call(capsys, "export", str(run.path)).code == 0
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
    sentence = refused(capsys, "export", str(run.path))
    assert sentence == f"{path} imports helper beside it, so {module}:by_spec cannot be exported: put it in one file."
    assert not (run.path / "export").exists()
    for name in ("helper", "helper.deep"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_package(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"{module}.py").unlink()
    package = tmp_path / f"{module}_package"
    package.mkdir()
    (package / "__init__.py").write_text("from .net import by_spec\n")
    (package / "net.py").write_text(NETWORK)
    for name in (package.name, f"{package.name}.net"):
        run, _ = make_run(tmp_path / f"run-{name}", Imported(f"{name}:by_spec"), GREY)
        assert f"{name!r} is not a single file" in refused(capsys, "export", str(run.path))


@dataclass(frozen=True)
class Registered:
    """A network of one's own as docs/extending.md has it: in `MODELS`, with its source in one module."""

    width: int = 4
    kept: bool = False

    def build(self, data: DataSpec) -> nn.Module:
        channels, height, width = data.shape
        inputs = data.numel if self.kept else channels * height * width
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, self.width), nn.Linear(self.width, data.num_classes))


@dataclass(frozen=True)
class Keeps:
    def build(self, data: DataSpec) -> nn.Module:
        kept = data
        return nn.Sequential(nn.Flatten(), nn.Linear(64, kept.num_classes))


@dataclass(frozen=True)
class Needs:
    def build(self, data: DataSpec) -> nn.Module:
        assert pytest is not None
        return nn.Sequential(nn.Flatten(), nn.Linear(64, data.num_classes))


def test_a_registered_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "registered", Registered())
    folders, expected = {}, []
    for kept in (False, True):
        run, logits = make_run(tmp_path / f"run-{kept}", Registered(kept=kept), GREY)
        write_folder(load_subject(run.path, "best", None), run.path / "export")
        folders[run.path / "export"] = images(GREY)
        expected.append(logits)
    assert all(map(torch.equal, read_logits(folders), expected))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [(Keeps(), r"Keeps keeps its DataSpec: read"), (Needs(), r"imports pytest, so its network cannot be exported")],
)
def test_a_registered_network_that_cannot_be_one_file(
    model: Keeps | Needs, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "registered", model)
    run, _ = make_run(tmp_path / "run", model, GREY)
    subject = load_subject(run.path, "best", None)
    with pytest.raises(UserError, match=sentence):
        write_folder(subject, tmp_path / "out")
    assert not (tmp_path / "out").exists()
