"""Checkpoints of networks that were trained on normalised images: `--mean` and `--std`."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import uiat
from tests.support.calls import call, refused, stopped
from tests.support.runs import DATA, TINY, splits
from uiat import Normalized, UserError
from uiat.models import MODELS, ResNet
from uiat.models.wrappers import LogitsOf
from uiat.runs.run_folder import RunFolder, read_json
from uiat.runs.weights import load_weights
from uiat.types import DataSpec

MEAN, STD = 0.5, 0.1
FLAGS = ("--mean", str(MEAN), "--std", str(STD))
SOURCE = """\
import uiat
from torch import nn

def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))

def normalised(num_classes):
    return uiat.Normalized(build(num_classes), [0.5], [0.1])
"""
ON_DIGITS = ("--data", "digits", "--data.subset", "72", "--data.validation", "12", "--data.test-subset", "40")


def nearest_mean() -> nn.Sequential:
    """Return the linear network that chooses the nearest class mean of normalised digits; it is not trained."""
    train = splits(DATA).train
    x = ((train.x.float() / 255 - MEAN) / STD).flatten(1)
    means = torch.stack([x[train.y == label].mean(dim=0) for label in range(10)])
    linear = nn.Linear(64, 10)
    linear.load_state_dict({"weight": means, "bias": -means.square().sum(dim=1) / 2})
    return nn.Sequential(nn.Flatten(), linear)


def accuracy(network: nn.Module) -> float:
    test = splits(DATA).test
    return float((network(test.x.float() / 255).argmax(dim=1) == test.y).double().mean())


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Save the weights of the network without normalisation, and the code that builds it."""
    name = re.sub(r"\W", "_", f"theirs_{request.node.name}")
    (tmp_path / f"{name}.py").write_text(SOURCE)
    torch.save(nearest_mean().state_dict(), tmp_path / "inner.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def evaluate(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[dict[str, Any], str]:
    found = call(capsys, "evaluate", *args, *ON_DIGITS, "--attacks", "natural", "--json", "out.json")
    assert found.code == 0, found.err
    return json.loads(Path("out.json").read_text()), found.err


def test_a_checkpoint_has_its_own_accuracy_only_with_them(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    bare = nearest_mean()
    own = accuracy(Normalized(bare, [MEAN], [STD]))
    assert own > 0.7
    args = ("inner.pt", "--model", f"{module}:build")
    card, notes = evaluate(capsys, *args, *FLAGS)
    assert card["attacks"]["natural"]["accuracy"] == own
    assert (card["mean"], card["std"]) == ([MEAN], [STD])
    assert "mean 0.5, std 0.1" in notes
    assert "--mean" not in notes
    without, notes = evaluate(capsys, *args)
    assert without["attacks"]["natural"]["accuracy"] == accuracy(bare) < own - 0.1
    assert "mean" not in without
    assert "--mean" in notes
    assert "--std" in notes


@pytest.mark.parametrize("whole", [False, True])
def test_the_weights_may_be_of_the_network_inside_or_of_the_whole(
    whole: bool, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    network = Normalized(nearest_mean(), [MEAN], [STD])
    torch.save((network if whole else network.model).state_dict(), "weights.pt")
    for args in ((f"{module}:build", *FLAGS), (f"{module}:normalised",)):
        card, _ = evaluate(capsys, "weights.pt", "--model", *args)
        assert card["attacks"]["natural"]["accuracy"] == accuracy(network)


def test_a_bundled_network(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    network = ResNet(blocks=(1, 1, 1), width=4).build(splits(DATA).spec).eval()
    torch.save({"state_dict": network.state_dict()}, "weights.pt")
    args = ("weights.pt", "--model", "resnet8", "--model.width", "4", "--exact")
    for flags, whole in ((FLAGS, Normalized(network, [MEAN], [STD])), ((), network)):
        card, notes = evaluate(capsys, *args, *flags)
        assert card["attacks"]["natural"]["accuracy"] == accuracy(whole)
        assert ("not normalised" in notes) == (not flags)


@dataclass(frozen=True)
class Plain:
    """A registered network that does not normalise."""

    def build(self, data: DataSpec) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(data.numel, data.num_classes))


@dataclass(frozen=True)
class Own(Plain):
    """A registered network that normalises."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def build(self, data: DataSpec) -> nn.Module:
        return Normalized(super().build(data), self.mean, self.std) if self.mean else super().build(data)


@pytest.mark.usefixtures("module")
def test_a_registered_network(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, model in (("plain", Plain()), ("own", Own())):
        monkeypatch.setitem(MODELS, name, model)
    card, _ = evaluate(capsys, "inner.pt", "--model", "own", *FLAGS)
    assert card["attacks"]["natural"]["accuracy"] == accuracy(Normalized(nearest_mean(), [MEAN], [STD]))
    message = stopped(capsys, "evaluate", "inner.pt", "--model", "plain", "--data", "digits", *FLAGS)
    assert "`mean` and `std`" in message


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "imagenet"])
def test_names_stand_for_the_numbers_of_the_channels(
    name: str, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have three channels, so they cannot be used for digits."""
    args = ("inner.pt", "--model", f"{module}:build", "--data", "digits")
    for flags in (("--mean", name), ("--mean", name, "--std", name), ("--std", name, "--mean", "0.5", "0.4", "0.3")):
        message = stopped(capsys, "evaluate", *args, *flags)
        assert "mean has 3 numbers and std 3" in message
        assert "1 channel" in message


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        (("--mean", "0.3"), ("--mean", "--std", "cifar10")),
        (("--std", "cifar10"), ("--mean", "--std")),
        (("--mean", "125.3", "--std", "63"), ("--mean is 125.3", "255")),
        (("--mean", "0.3", "--std", "0"), ("std", "above 0")),
        (("--mean", "-0.3", "--std", "0.4"), ("--mean is -0.3",)),
        (("--mean", "nan", "--std", "0.4"), ("--mean is nan",)),
        (("--mean", "cifar"), ("cifar", "did you mean 'cifar10'")),
        (("--mean", "0.3", "0.3", "--std", "0.4"), ("mean has 2 numbers and std 1",)),
    ],
)
def test_implausible_mean_and_std(
    flags: tuple[str, ...], facts: tuple[str, ...], module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = stopped(capsys, "evaluate", "inner.pt", "--model", f"{module}:build", "--data", "digits", *flags)
    assert all(fact in message for fact in facts), message


def test_statements_that_contradict_each_other(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(Normalized(nearest_mean(), [MEAN], [STD]).state_dict(), "whole.pt")
    args = ("--data", "digits", "--model")
    twice = stopped(capsys, "evaluate", "inner.pt", *args, f"{module}:normalised", "--mean", "0.4", "--std", "0.4")
    assert "normalises its inputs already" in twice
    card, _ = evaluate(capsys, "inner.pt", "--model", f"{module}:normalised", *FLAGS)  # the same numbers
    assert card["attacks"]["natural"]["accuracy"] == accuracy(Normalized(nearest_mean(), [MEAN], [STD]))
    other = stopped(capsys, "evaluate", "whole.pt", *args, f"{module}:build", "--mean", "0.4", "--std", "0.4")
    assert "--mean 0.5 --std 0.1" in other
    without = stopped(capsys, "evaluate", "whole.pt", *args, f"{module}:build")
    assert "--mean 0.5 --std 0.1" in without


def test_a_run_begins_with_the_weights_and_records_them(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = ("--model", f"{module}:build")
    recipe = ("train", "digits-resnet8-sat", *network, "--init", "inner.pt", *FLAGS)
    tiny = [word for word in TINY if word not in ("--model.width", "4")]
    found = call(capsys, *recipe, *tiny, "--train.epochs", "1", "--out", "run")
    assert found.code == 0, found.err
    run = RunFolder.open("run")
    inner = nearest_mean()
    initial = Normalized(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), [0.0], [1.0])
    with pytest.raises(UserError, match=r"mean of 0\.5"):
        load_weights(initial, run.initial)
    initial = Normalized(initial.model, [MEAN], [STD])
    load_weights(initial, run.initial)
    assert all(map(torch.equal, initial.model.state_dict().values(), inner.state_dict().values()))
    assert read_json(run.config)["model"]["mean"] == [MEAN]
    loaded = uiat.load("run", model=f"{module}:build")
    assert isinstance(loaded, Normalized)
    flags = ("evaluate", "run", *network, "--attacks", "natural", "--n", "5")
    assert call(capsys, *flags).code == call(capsys, *flags, *FLAGS).code == 0
    message = refused(capsys, *flags, "--mean", "0.4", "--std", "0.4")
    assert message.startswith("run records")
    assert "omit --model.mean" in refused(capsys, *flags, "--model.mean", "0.4", "--model.std", "0.4")
    Path(f"{module}_moved.py").write_text(SOURCE)
    for name in ("build", "normalised"):  # recorded with the run, wherever its code is now
        moved = f"{module}_moved:{name}"
        assert call(capsys, "evaluate", "run", "--model", moved, "--attacks", "natural", "--n", "5").code == 0
        assert torch.equal(uiat.load("run", model=moved)(torch.ones(1, 1, 8, 8)), loaded(torch.ones(1, 1, 8, 8)))
    assert "--mean" in refused(capsys, "report", "run", *FLAGS)


@pytest.mark.parametrize("command", ["curves", "inverse"])
def test_the_next_command_has_them_too(command: str, module: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("inner.pt", "--model", f"{module}:build", *ON_DIGITS, *FLAGS, "--n", "10", "--batch-size", "5")
    more = ("--grid", "0", "0.1") if command == "curves" else ("--passes", "1", "--z-images", "10", "--beta", "0")
    found = call(capsys, command, *args, *more)
    assert found.code == 0, found.err
    assert " ".join(FLAGS) in found.out.splitlines()[-1]
    assert read_json(Path(command) / f"{command}.json")["mean"] == [MEAN]


class Inner(nn.Module):
    """Its parameter names begin like those of a wrapper."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.module = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.module(self.model(x))
        return outputs


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_names_of_every_depth_are_distinguished(depth: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    source, target = Inner(), Inner()
    saved = [source, LogitsOf(source), Normalized(LogitsOf(source), [0.5], [0.5])][depth]
    torch.save({f"module.{name}": value for name, value in saved.state_dict().items()}, tmp_path / "weights.pt")
    load_weights(Normalized(LogitsOf(target), [0.5], [0.5]), tmp_path / "weights.pt")
    assert all(map(torch.equal, target.state_dict().values(), source.state_dict().values()))


def test_another_network_is_named(tmp_path: Path) -> None:
    torch.save(nn.Linear(4, 3).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(UserError, match="it is of another network"):
        load_weights(Normalized(nn.Sequential(nn.Linear(4, 3)), [0.5], [0.5]), tmp_path / "weights.pt")
