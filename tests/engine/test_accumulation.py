"""Gradient accumulation: micro-batches make the same step as the whole batch."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support.moments import at_call, die
from tests.support.runs import STEPS, begin, snapshot, tiny, unbroken
from uiat.config import AWP
from uiat.engine.pass_counter import PassCounter
from uiat.engine.state import State
from uiat.engine.step import make_optimizer, train_step
from uiat.methods import METHODS
from uiat.targets import OneOffTarget, UniversalInverseTarget
from uiat.types import Batch, Clock, DataSpec

SPEC = DataSpec(num_classes=4, num_samples=48, shape=(1, 8, 8))
EPOCHS, BATCH = 3, 16


def network(seed: int) -> nn.Module:
    """Return a convolutional network in float64 without BatchNorm."""
    torch.manual_seed(seed)
    convolution = nn.Conv2d(1, 6, 3, stride=2, padding=1)
    return nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), nn.Linear(96, 12), nn.Tanh(), nn.Linear(12, 4)).double()


def run(name: str, micro_batch: int | None, awp: AWP | None = None) -> State:
    """Make three epochs of three steps."""
    model, helper = network(0), network(1).requires_grad_(False)
    method = tiny(name).method.build(SPEC, seed=0, helper=helper).double()
    state = State(model, method, make_optimizer(model, 0.9, 5e-4), PassCounter(model))
    draw = torch.Generator().manual_seed(0)
    x = torch.rand((SPEC.num_samples, *SPEC.shape), generator=draw, dtype=torch.float64)
    y = torch.randint(SPEC.num_classes, (SPEC.num_samples,), generator=draw)
    for epoch in range(1, EPOCHS + 1):
        for step, index in enumerate(torch.randperm(len(x), generator=draw).split(BATCH)):
            batch = Batch(x[index], y[index], index)
            train_step(state, batch, Clock(epoch, step, EPOCHS), lr=0.05, micro_batch=micro_batch, awp=awp)
    return state


def z_of(state: State) -> Tensor | None:
    found = [module.z for module in state.method.modules() if isinstance(module, UniversalInverseTarget)]
    return found[0] if found else None


@pytest.mark.parametrize("awp", [None, AWP(enabled=True, gamma=0.05)], ids=["plain", "awp"])
@pytest.mark.parametrize("method", METHODS)
def test_the_same_weights_and_z(method: str, awp: AWP | None) -> None:
    whole, parts = run(method, None, awp), run(method, 5, awp)
    before = network(0)
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(whole.model.parameters(), before.parameters(), strict=True))
    for (name, expected), found in zip(whole.model.named_parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6, msg=name)
    z, other = z_of(whole), z_of(parts)
    if z is not None and other is not None:
        assert (z == other).double().mean() >= 0.999
        assert z.abs().max() > 0.04  # it did move, from 0.001·N(0, 1)
    for mean, expected_mean in zip(parts.meter.means().items(), whole.meter.means().items(), strict=True):
        assert mean == pytest.approx(expected_mean)


@pytest.mark.parametrize(("method", "updates"), [("uiat", 9), ("uiat-oneoff", 3)])
def test_z_is_updated_once_a_full_batch(method: str, updates: int) -> None:
    with at_call("uiat.targets.universal.ascend", 0, die) as calls:
        run(method, 5)
    assert calls[0] == updates


def test_the_table_is_the_same() -> None:
    tables = [run("uiat-oneoff", micro).method.target for micro in (None, 5)]
    assert all(isinstance(target, OneOffTarget) and target.table.seen.all() for target in tables)
    first, second = (dict(target.named_buffers())["table.log_p"] for target in tables if target is not None)
    torch.testing.assert_close(second, first, rtol=0, atol=1e-5)


def test_it_runs_with_batchnorm(tmp_path: Path) -> None:
    parts = begin(tiny("uiat", micro_batch=6), tmp_path / "parts")
    assert len(parts.read_metrics("epoch")) == 3
    found, expected = snapshot(parts), unbroken(tiny("uiat"))
    assert found["/result/training_passes/forward"] == expected["/result/training_passes/forward"]
    counter = "/checkpoint/model/bn1.num_batches_tracked"
    assert found[counter] != expected[counter]  # BatchNorm normalises each part separately


def test_a_micro_batch_as_large_as_the_batch_changes_nothing(tmp_path: Path) -> None:
    whole = unbroken(tiny("uiat"))
    parts = snapshot(begin(tiny("uiat", micro_batch=4 * STEPS), tmp_path / "parts"))
    assert [k for k in whole if k.startswith("/last/") and whole[k] != parts[k]] == []
