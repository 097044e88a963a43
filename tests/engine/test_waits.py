"""How often a step reads a value from the device, where the host waits for a GPU (docs/performance.md)."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.runs import CPU, splits, tiny
from uiat.config import AWP
from uiat.engine import step
from uiat.engine.setup import build_loader, build_state
from uiat.targets import universal
from uiat.types import Clock

aten = torch.ops.aten
WAIT = (aten._local_scalar_dense.default, aten.nonzero.default, aten._unique2.default, aten.masked_select.default)
ATTACK = 2
"""Gradients of the attack in these runs."""


class Waits(TorchDispatchMode):
    """Counts how often a value is read from the device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += int(func in WAIT)
        return func(*args, **(kwargs or {}))


def waits(method: str, epoch: int = 1, *, undo: bool = False, awp: AWP | None = None, **changes: Any) -> int:
    """Return the waits of a step that is not the first."""
    settings = tiny(method, **changes)
    data = splits(settings.data)
    state = build_state(settings, data.spec, CPU, settings.model.build(data.spec))
    counted = Waits()
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(state.method, "_check", lambda batch: None)  # on a GPU, every hundredth batch is checked
    for number, batch in list(build_loader(settings, data.train, CPU).epoch(epoch))[:2]:
        counted.count = 0
        with counted:
            assert step.train_step(state, batch, Clock(epoch, number, 3), lr=0.1, undo=undo, awp=awp) is None
    return counted.count


@pytest.fixture(params=["few classes", "many classes"])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Waits of a UIAT step for the rows of z: with many classes it must know which are in the batch."""
    many = request.param == "many classes"
    if many:
        monkeypatch.setattr(universal, "FEW_CLASSES", 0)
    return int(many)


@pytest.mark.parametrize("method", ["natural", "sat", "trades", "hat", "iat", "uiat-oneoff"])
def test_a_step_without_z(method: str) -> None:  # MART's one_hot checks its labels, but only on CPUs
    assert waits(method) == 1


def test_a_step_with_z(rows: int) -> None:
    for epoch in (1, 3):  # without and with its momentum
        assert waits("uiat", epoch) == 1 + rows
    assert waits("uiat", 3, precision="bf16") == 1 + rows
    assert waits("uiat-oneoff", 2) == 1 + rows
    assert waits("uiat", precision="fp16") == 1 + 3 + ATTACK + 1 + rows
    assert waits("uiat", undo=True) == 1 + 2 * rows
    assert waits("uiat", awp=AWP(enabled=True)) == 1 + 3 * rows


def test_other_ways_of_a_step() -> None:
    assert waits("sat", precision="bf16") == waits("sat", undo=True) == waits("sat", awp=AWP(enabled=True)) == 1
    assert waits("natural", precision="fp16") == 1 + 3
    assert waits("sat", precision="fp16") == 1 + 3 + ATTACK
