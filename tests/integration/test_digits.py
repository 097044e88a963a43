"""Each method, from the command line to an evaluated run, on real images: robust accuracy under PGD-20."""

import json
from pathlib import Path

import pytest

from uiat.attacks import PGD
from uiat.cli import main
from uiat.methods import METHODS

EPOCHS = "5"
"""T = 3 and T' = 4 by their default fractions; enough to be far above natural training."""
STEPS = "5"
"""Of PGD in training, half of the recipes': ε/4 each."""
MORE = "8"
"""RS-FGSM trains for half the radius, where natural training is not yet at its end: it takes longer to be far above."""

FAST = ("sat", "uiat")
"""Methods of `make test`; `make test-slow` has the others."""


def pgd20(method: str, folder: Path, *evaluation: str) -> float:
    """Train a digits recipe and return its PGD-20 accuracy on the test set."""
    out = folder / method
    if not out.exists():
        epochs = MORE if method.startswith("rs-fgsm") else EPOCHS
        small = ["--train.epochs", epochs, "--model.width", "8", "--data.subset", "800", "--data.validation", "60"]
        small += ["--train.batch-size", "32", "--validate.steps", "5"]
        small += ["--method.attack.steps", STEPS] if isinstance(METHODS[method].attack, PGD) else []
        assert main(["train", f"digits-resnet8-{method}", "--out", str(out), *small]) == 0
    attacks = ["--attacks", "natural", "pgd-20", "--json", str(folder / "result.json")]
    assert main(["evaluate", str(out), *attacks, *evaluation]) == 0
    result = json.loads((folder / "result.json").read_text())
    assert result["attacks"]["natural"]["accuracy"] > 0.5
    return float(result["attacks"]["pgd-20"]["accuracy"])


@pytest.fixture(scope="module")
def natural(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """PGD-20 accuracy of natural training, at the radius that most recipes train for and at RS-FGSM's."""
    folder = tmp_path_factory.mktemp("natural")
    return {eps: pgd20("natural", folder, "--eps", eps) for eps in ("0.2", "0.1")}


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in METHODS if name != "natural"],
)
def test_method_beats_natural_training(method: str, natural: dict[str, float], tmp_path: Path) -> None:
    baseline = natural["0.1" if method.startswith("rs-fgsm") else "0.2"]
    assert pgd20(method, tmp_path) >= baseline + 0.15
