"""Gradient accumulation: micro-batches make the same step as the whole batch."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.support.moments import at_call, die
from tests.support.runs import STEPS, begin, snapshot, tiny
from uiat.config import AnyConfig, Schedule
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


def run(config: AnyConfig, micro_batch: int | None) -> State:
    """Make three epochs of three steps."""
    model, helper = network(0), network(1).requires_grad_(False)
    method = config.method.build(SPEC, seed=0, helper=helper).double()
    state = State(model, method, make_optimizer(model, 0.9, 5e-4), PassCounter(model))
    draw = torch.Generator().manual_seed(0)
    x = torch.rand((SPEC.num_samples, *SPEC.shape), generator=draw, dtype=torch.float64)
    y = torch.randint(SPEC.num_classes, (SPEC.num_samples,), generator=draw)
    for epoch in range(1, EPOCHS + 1):
        for step, index in enumerate(torch.randperm(len(x), generator=draw).split(BATCH)):
            batch = Batch(x[index], y[index], index)
            train_step(state, batch, Clock(epoch, step, EPOCHS), lr=0.05, micro_batch=micro_batch)
    return state


def z_of(state: State) -> Tensor | None:
    found = [module.z for module in state.method.modules() if isinstance(module, UniversalInverseTarget)]
    return found[0] if found else None


@pytest.mark.parametrize("micro_batch", [5, 8])
@pytest.mark.parametrize("method", METHODS)
def test_the_same_weights_and_z(method: str, micro_batch: int) -> None:
    config = tiny(method)
    whole, parts = run(config, None), run(config, micro_batch)
    for (name, expected), found in zip(whole.model.named_parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6, msg=name)
    z, other = z_of(whole), z_of(parts)
    if z is not None and other is not None:
        assert (z == other).double().mean() >= 0.999
        assert z.abs().max() > 0.04  # it did move, from 0.001·N(0, 1)
    for mean, expected_mean in zip(parts.meter.means().items(), whole.meter.means().items(), strict=True):
        assert mean == pytest.approx(expected_mean)


def test_the_weights_do_move() -> None:
    before, after = network(0), run(tiny("uiat"), 5).model
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(after.parameters(), before.parameters(), strict=True))


@pytest.mark.parametrize(("method", "updates"), [("uiat", 9), ("uiat-oneoff", 3)])
def test_z_is_updated_once_a_full_batch(method: str, updates: int) -> None:
    with at_call("uiat.targets.universal.ascend", 0, die) as calls:
        run(tiny(method), 5)
    assert calls[0] == updates


def test_the_table_is_the_same() -> None:
    config = tiny("uiat-oneoff")
    tables = [run(config, micro).method.target for micro in (None, 5)]
    assert all(isinstance(target, OneOffTarget) and target.table.seen.all() for target in tables)
    first, second = (dict(target.named_buffers())["table.log_p"] for target in tables if target is not None)
    torch.testing.assert_close(second, first, rtol=0, atol=1e-5)


def test_it_runs_with_batchnorm(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("runs")
    whole = begin(tiny("uiat"), folder / "whole")
    parts = begin(tiny("uiat", micro_batch=6), folder / "parts")
    lines = [line for line in parts.read_metrics() if line["kind"] == "epoch"]
    assert len(lines) == 3
    found, expected = snapshot(parts), snapshot(whole)
    assert found["/result/training_passes/forward"] == expected["/result/training_passes/forward"]
    counter = "/checkpoint/model/bn1.num_batches_tracked"
    assert found[counter] != expected[counter]  # BatchNorm normalises each part separately


def test_a_micro_batch_as_large_as_the_batch_changes_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("runs")
    plan = replace(tiny("uiat").train, schedule=Schedule(lr=0.05))
    whole = snapshot(begin(replace(tiny("uiat"), train=plan), folder / "whole"))
    parts = snapshot(begin(replace(tiny("uiat"), train=replace(plan, micro_batch=4 * STEPS)), folder / "parts"))
    assert [k for k in whole if k.startswith("/last/") and whole[k] != parts[k]] == []
