"""The best epoch: selected by validation accuracy, from the first selectable epoch of the method on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import begin, tiny
from uiat.attacks import NFGSM
from uiat.engine import loop
from uiat.methods import SingleStep, UIATPlugIn
from uiat.runs.run_folder import read_json
from uiat.targets import OneOff

PLUGGED = SingleStep(attack=NFGSM(eps=0.1), uiat=UIATPlugIn(enabled=True, one_off=OneOff(epoch=3)))


@pytest.mark.parametrize(
    ("method", "accuracies", "best"),
    [
        ("sat", (0.9, 0.5, 0.4), 1),
        ("uiat", (0.5, 0.9, 0.4), 2),
        ("uiat-oneoff", (0.9, 0.4, 0.3), 2),
        ("uiat-oneoff", (0.9, 0.4, 0.5), 3),
        ("n-fgsm-uiat", (0.9, 0.8, 0.1), 1),
    ],
)
def test_what_is_selected(
    method: str, accuracies: tuple[float, ...], best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One-off UIAT has seen no inverse example before T' = 2, whatever its accuracy then.

    A single-step method with the plug-in keeps the weights from before a catastrophic overfitting.
    """
    validate = loop._validate

    def record(config: Any, state: Any, *others: Any) -> dict[str, Any]:
        return {**validate(config, state, *others), "val_robust": accuracies[state.epoch - 1]}

    monkeypatch.setattr(loop, "_validate", record)
    config = tiny("uiat" if method == "n-fgsm-uiat" else method)
    assert config.train.select == "robust"
    run = begin(replace(config, method=PLUGGED) if method == "n-fgsm-uiat" else config, tmp_path / "run")
    card = read_json(run.result)
    assert card["best"] == {**card["best"], "epoch": best, "val_robust": accuracies[best - 1]}
