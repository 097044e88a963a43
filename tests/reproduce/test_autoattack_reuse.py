"""AutoAttack starts from its first components where these were measured on the same images, with the same verdicts."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.tiny import TINY
from uiat.engine.signals import StopSignal
from uiat.evaluation import autoattack
from uiat.evaluation.autoattack import AutoAttackComponent
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import Attacked
from uiat.reproduce.runner import Runner

AA = Attacked("autoattack", 16)
SHORTER = Attacked("apgd-ce+apgd-t", 16)
OTHERS = (Attacked("apgd-ce+apgd-t", 12), Attacked("apgd-ce+apgd-t", 16, "last"), Attacked("apgd-t", 16))
"""Other images, other weights, no first component of AutoAttack."""


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make AutoAttack short, and return the list of the components that are called."""
    names: list[str] = []
    build, call = autoattack.build_components, AutoAttackComponent.__call__

    def short(*args: Any, **named: Any) -> Any:
        parts, notices = build(*args, **named)
        return [replace(part, steps=4, queries=20) for part in parts], notices

    def noted(self: AutoAttackComponent, model: nn.Module, *args: Any) -> Any:
        names.append(self.name)
        return call(self, model, *args)

    monkeypatch.setattr(autoattack, "build_components", short)
    monkeypatch.setattr(AutoAttackComponent, "__call__", noted)
    return names


def make(out: Path, *measures: Attacked) -> Store:
    cell = Cell(TINY.config("sat"), measures)
    runner = Runner(out, torch.device("cpu"), None, StopSignal(), print)
    runner.make_all([cell])
    assert runner.failures([cell]) == {}
    return Store(cell, out)


def test_it_continues_with_the_same_verdicts(tmp_path: Path, called: list[str]) -> None:
    make(tmp_path / "trained")
    for name in ("whole", "begun", "unlike"):
        shutil.copytree(tmp_path / "trained", tmp_path / name)
    whole = make(tmp_path / "whole", AA)
    assert called == ["apgd-ce", "apgd-t", "fab-t", "square"]
    called.clear()
    begun = make(tmp_path / "begun", SHORTER, AA)
    assert called == ["apgd-ce", "apgd-t", "fab-t", "square"], "each once for both measurements"
    assert torch.equal(whole.tensors(AA)["correct"], begun.tensors(AA)["correct"])
    facts, others = whole.read(AA), begun.read(AA)
    assert facts is not None
    assert others is not None
    assert facts["after"] == others["after"]
    assert list(facts["after"]) == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert 0 < whole.tensors(AA)["correct"].sum() < 16, "some stand and some fall: the comparison can fail"
    make(tmp_path / "unlike", *OTHERS)
    called.clear()
    make(tmp_path / "unlike", AA)
    assert called == ["apgd-ce", "apgd-t", "fab-t", "square"], "none of these is a part of it"
