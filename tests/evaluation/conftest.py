"""Two tiny networks trained on digits: one robust, one natural."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from uiat import data
from uiat.cli import main
from uiat.data.images import Images
from uiat.evaluation import autoattack
from uiat.runs.run_folder import RunFolder
from uiat.runs.weights import load_weights

TINY = ["--model.width", "4", "--model.blocks", "1", "1", "--train.epochs", "6", "--validate.steps", "2"]


def _train(folder: Path, method: str, *more: str) -> Path:
    out = folder / method
    assert main(["train", f"digits-resnet8-{method}", "--out", str(out), *TINY, *more]) == 0
    return out


SHORT = {"steps": 15, "queries": 200}
"""Of AutoAttack's components, which have 100 steps and 5,000 queries."""


@pytest.fixture
def short_autoattack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten AutoAttack's components: the code around them does not depend on their length."""
    short = partial(autoattack.AutoAttackComponent, **SHORT)  # type: ignore[arg-type]
    monkeypatch.setattr(autoattack, "AutoAttackComponent", short)


@pytest.fixture(scope="session")
def robust_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TRADES run."""
    return _train(tmp_path_factory.mktemp("runs"), "trades", "--method.attack.steps", "4")


@pytest.fixture(scope="session")
def natural_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A naturally trained run."""
    return _train(tmp_path_factory.mktemp("runs"), "natural")


@pytest.fixture(scope="session")
def digits() -> data.Splits:
    """The images of both runs."""
    return data.load_splits(data.DataConfig(name="digits", crop=0, flip=False))


@pytest.fixture(scope="session")
def load(digits: data.Splits) -> Callable[[Path], nn.Module]:
    """Load a run's best network, frozen and in eval mode."""

    def network(run: Path) -> nn.Module:
        folder = RunFolder.open(run)
        model = folder.read_config().model.build(digits.spec)
        load_weights(model, folder.best)
        return model.eval().requires_grad_(False)

    return network


@pytest.fixture(scope="session")
def many(digits: data.Splits) -> Images:
    """More images than in the test set: test, validation and some of the training images."""
    parts = [digits.test, digits.validation, digits.train.take(torch.arange(100))]
    joined: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in ("x", "y")}
    return Images(classes=digits.test.classes, **joined)
