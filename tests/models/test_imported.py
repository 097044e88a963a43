"""Custom networks, named as `module:callable`."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.calls import call, missing_facts, refused
from tests.support.networks import data
from tests.support.runs import TINY, tiny
from uiat import UserError, models
from uiat.config_json import from_json, to_json
from uiat.models import Imported, penultimate

DATA = data(classes=7, shape=(3, 8, 8))
SOURCE = """\
import torch
from torch import nn


def net(classes=7, channels=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * 64, 5), nn.Linear(5, classes))


def nothing():
    return net()


def number(num_classes):
    return net(num_classes)


def numbers(in_channels, num_classes=1000, dropout=0.1):
    assert dropout == 0.1
    return net(num_classes, in_channels)


def keyword(*, num_classes):
    return net(num_classes)


def spec(anything):
    return net(anything.num_classes, anything.shape[0])


def named_spec(data, depth=3):
    return net(data.num_classes, data.shape[0])


def anything_goes(*args, **kwargs):
    assert not args and not kwargs
    return net()


class Net(nn.Sequential):
    def __init__(self, num_classes=10):
        super().__init__(*net(num_classes))


class Maker:
    def __call__(self, num_classes):
        return net(num_classes)


maker = Maker()
built = net()
value = 3


def several(first, second):
    return net()


def positional(first, /):
    return net()


def wrong():
    return "a network"


def nobody():
    return None


def broken(num_classes):
    raise RuntimeError("no such layer")


def mistaken(num_classes):
    return len(num_classes)


def layered():
    model = net()
    model.penultimate_layer = "1"
    return model
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Put the file into the current folder, under a name that no other test imports."""
    name = re.sub(r"\W", "_", f"imported_{request.node.name}")
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # so that additions are removed after the test
    return name


@pytest.mark.parametrize(
    "name",
    ["nothing", "number", "numbers", "keyword", "spec", "named_spec", "anything_goes", "Net", "maker"],
)
def test_a_callable(name: str, module: str) -> None:
    model = models.get_model(f"{module}:{name}").build(DATA)
    assert isinstance(model, nn.Module)
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("wrong", "str nn.Module"),
        ("nobody", "NoneType nn.Module"),
        ("broken", "RuntimeError 'no such layer'"),
        ("mistaken", "TypeError len()"),
        ("built", "network class function"),
        ("missing", "callable missing --model"),
        ("value", "callable value --model"),
        ("", "callable --model"),
    ],
)
def test_a_mistake(name: str, facts: str, module: str) -> None:
    with pytest.raises(UserError) as caught:
        Imported(f"{module}:{name}").build(DATA)
    assert missing_facts(str(caught.value), f"{module}:{name} {facts}") == []


@pytest.mark.parametrize("name", ["several", "positional"])
def test_parameters_that_cannot_be_filled(name: str, module: str) -> None:
    with pytest.raises(UserError, match=rf"{module}:{name} .*'first'"):
        Imported(f"{module}:{name}").build(DATA)


@pytest.mark.parametrize("target", ["", ":", ":net", "..x:net", "no_such_module_anywhere:net", "no.such:net"])
def test_a_module_that_is_not_there(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^cannot import '.*' for --model .*\.$"):
        Imported(target).build(DATA)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def net(:\n", r"SyntaxError: invalid syntax"),
        ("import no_such_package\n", r"No module named 'no_such_package'"),
        ("1 / 0\n", r"ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_does_not_import(text: str, reason: str, module: str) -> None:
    Path(f"{module}.py").write_text(text)
    with pytest.raises(UserError, match=rf"^cannot import '{module}' for --model {module}:net \({reason}"):
        Imported(f"{module}:net").build(DATA)


def test_something_without_a_signature() -> None:
    with pytest.raises(UserError, match="builtins:type could not be called"):
        Imported("builtins:type").build(DATA)


def test_the_layer_of_the_features(module: str) -> None:
    x = torch.rand(2, 3, 8, 8)
    widths: list[tuple[str, str, int]] = [("nothing", "", 5), ("nothing", "1", 192), ("layered", "", 192)]
    for name, layer, width in widths:
        model = Imported(f"{module}:{name}", features=layer).build(DATA)
        f, logits = penultimate(model, x)
        assert (f.shape[1], logits.shape) == (width, (2, 7))


def test_a_configuration_comes_back(module: str) -> None:
    config = replace(tiny("uiat"), model=Imported(f"{module}:number", features="2"))
    saved = json.loads(json.dumps(to_json(config)))
    no_statistics: dict[str, object] = {"mean": [], "std": []}
    assert saved["model"] == {"kind": "Imported", "target": f"{module}:number", "features": "2", **no_statistics}
    assert from_json(saved) == config


def test_a_whole_run(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SOURCE.replace("channels=3", "channels=1")
    Path(f"{module}.py").write_text(text)
    args = [word for k, word in enumerate(TINY) if "--model.width" not in TINY[max(k - 1, 0) : k + 1]]
    short = ["--train.epochs", "1", "--out", str(tmp_path / "run")]
    named = ("--model", f"{module}:number")
    found = call(capsys, "train", *named, *args, *short)
    assert found.code == 0
    assert found.out.endswith(f"uiat evaluate {tmp_path / 'run'} --model {module}:number\n")
    assert call(capsys, "evaluate", str(tmp_path / "run"), *named, "--n", "10", "--attacks", "natural").code == 0


def test_the_command_line_prints_one_message(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, part in (("nte", "has no callable 'nte'"), ("several", "could not be called"), ("wrong", "returned str")):
        args = ["train", "--model", f"{module}:{name}", "--out", f"run-{name}", "--device", "cpu"]
        assert part in refused(capsys, *args).splitlines()[-1]
