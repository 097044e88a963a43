"""Catastrophic overfitting is reported: accuracy under PGD collapses, accuracy under FGSM does not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.calls import missing_facts
from tests.support.contract_setting import network, samples
from tests.support.moments import STEP, Killed, at_call, die
from tests.support.runs import STEPS, begin, resume_run, tiny
from uiat.attacks import FGSM, PGD
from uiat.engine import loop
from uiat.engine.overfitting import Overfitting, is_single_step, one_step
from uiat.evaluation.evaluation_result import AttackResult
from uiat.methods import METHODS, SAT
from uiat.runs.run_folder import RunFolder, read_json


def collapses(epochs: list[tuple[float, float]]) -> list[int]:
    """Return the epochs, from 1, in which a run with these accuracies under PGD and FGSM collapses."""
    watch = Overfitting()
    return [epoch for epoch, (robust, fgsm) in enumerate(epochs, 1) if watch.begins(epoch, robust, fgsm)]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([(0.2, 0.3), (0.4, 0.5), (0.01, 0.9), (0.0, 0.95)], [3]),
        ([(0.4, 0.5), (0.19, 0.4)], [2]),
        ([(0.4, 0.5), (0.2, 0.5)], []),
        ([(0.4, 0.5), (0.1, 0.39)], []),
        ([(0.5, 0.6), (0.45, 0.55), (0.35, 0.45), (0.24, 0.35), (0.2, 0.3)], []),
        ([(0.09, 0.5), (0.0, 0.9)], []),
        ([(0.0, 0.0), (0.0, 0.0), (0.0, 0.1)], []),
        ([(0.4, 0.5), (0.0, 0.9), (0.35, 0.5), (0.0, 0.9)], [2, 4]),
        ([(0.4, 0.5), (0.1, 0.9), (0.25, 0.9), (0.1, 0.9)], [2]),
        ([(0.4, 0.5), (0.0, 0.9), (0.1, 0.1), (0.0, 0.9), (0.45, 0.5), (0.1, 0.3)], [2]),
    ],
    ids=["collapse", "just", "half", "both", "decline", "nothing-to-lose", "nothing", "recovered", "hovering", "later"],
)
def test_the_rule(epochs: list[tuple[float, float]], expected: list[int]) -> None:
    assert collapses(epochs) == expected


def test_the_best_epoch_stays_the_measure() -> None:
    watch = Overfitting()
    for epoch, (robust, fgsm) in enumerate([(0.3, 0.4), (0.5, 0.6), (0.4, 0.7), (0.1, 0.6)], 1):
        begins = watch.begins(epoch, robust, fgsm)
    assert begins
    assert (watch.epoch, watch.robust, watch.fgsm, watch.first) == (2, 0.5, 0.6, 4)
    assert Overfitting(**watch.state_dict()) == watch
    facts = "'catastrophic overfitting' PGD 50.0% 'epoch 2' 10.0% 60.0% FGSM"
    assert missing_facts(watch.warning(0.1, 0.6, kept=2), facts) == []


def test_which_methods_are_watched() -> None:
    watched = {name for name, method in METHODS.items() if is_single_step(method)}
    assert watched == {name for name in METHODS if "fgsm" in name or "gradalign" in name}
    assert is_single_step(SAT(attack=PGD(steps=1)))


def test_the_single_step_is_fgsm() -> None:
    model, (x, y) = network().eval(), samples()
    assert torch.equal(one_step(PGD(eps=0.1, steps=20))(model, x, y), FGSM(eps=0.1)(model, x, y))
    assert one_step(PGD(eps=0.5, norm="l2", steps=20)).norm == "l2"


ROBUST, WEAK = (0.25, 0.5, 0.0, 0.0), (0.25, 0.5, 0.75, 1.0)


def stub(monkeypatch: pytest.MonkeyPatch, robust: tuple[float, ...], weak: tuple[float, ...]) -> list[str]:
    """Make validation return these accuracies, epoch by epoch; return the list of what is measured."""
    original, epoch, measured = loop._validate, [0], list[str]()

    def validate(config: Any, state: Any, *rest: Any) -> Any:
        epoch[0] = state.epoch
        return original(config, state, *rest)

    def accuracy(model: Any, images: Any, attack: PGD | None, **_: Any) -> AttackResult:
        name = "natural" if attack is None else "pgd" if attack.steps > 1 else "fgsm"
        measured.append(name)
        value = {"natural": 1.0, "pgd": robust[epoch[0] - 1], "fgsm": weak[epoch[0] - 1]}[name]
        return AttackResult("attack", 0.0, torch.arange(100) < 100 * value, 0.0)

    monkeypatch.setattr(loop, "_validate", validate)
    monkeypatch.setattr(loop, "accuracy", accuracy)
    return measured


def test_a_run_says_so_and_keeps_the_weights_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(stub(monkeypatch, ROBUST, WEAK)) == set()
    run = begin(tiny("rs-fgsm", epochs=4), tmp_path / "run")
    lines = [line for line in run.read_metrics() if line["kind"] == "epoch"]
    assert [line["val_fgsm"] for line in lines] == list(WEAK)
    assert [line.get("overfitting", False) for line in lines] == [False, False, True, False]
    log = run.log.read_text()
    assert log.count("catastrophic overfitting") == 1
    assert "fell from 50.0% in epoch 2 to 0.0%" in log
    assert "the weights of epoch 2 are kept as best" in log
    card = read_json(run.result)
    assert card["catastrophic_overfitting"] == 3
    assert card["best"]["epoch"] == 2


@pytest.mark.parametrize("step", [3 * STEPS - 1, 3 * STEPS + 1], ids=["before", "after"])
def test_a_resumed_run_says_so_once(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, ROBUST, WEAK)
    run = RunFolder.create(tmp_path / "run", tiny("rs-fgsm", epochs=4))
    with at_call(STEP, step, die), pytest.raises(Killed):
        resume_run(run)
    assert resume_run(run)
    assert run.log.read_text().count("catastrophic overfitting") == 1
    assert read_json(run.result)["catastrophic_overfitting"] == 3


@pytest.mark.parametrize("method", ["natural", "sat"])
def test_other_methods_are_not_measured(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = stub(monkeypatch, ROBUST, WEAK)
    run = begin(replace(tiny(method, epochs=3)), tmp_path / "run")
    assert set(measured) == {"natural", "pgd"}
    assert all("val_fgsm" not in line and "overfitting" not in line for line in run.read_metrics())
    assert "catastrophic_overfitting" not in read_json(run.result)


def test_selection_by_natural_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning names the epoch whose weights are kept, whichever accuracy selects it."""
    stub(monkeypatch, ROBUST, WEAK)
    config = tiny("n-fgsm", epochs=3)
    run = begin(replace(config, train=replace(config.train, select="natural")), tmp_path / "run")
    assert "fell from 50.0% in epoch 2 to 0.0%" in run.log.read_text()
    assert "the weights of epoch 1 are kept as best" in run.log.read_text()
