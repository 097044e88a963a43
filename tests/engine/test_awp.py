"""Weight perturbation within runs: weights restored bit by bit, micro-batches, faults, resume."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.engine.test_accumulation import BATCH, EPOCHS, SPEC, network, z_of
from tests.engine.test_resume import stopped_and_resumed
from tests.support.failing_network import Faulty, script
from tests.support.runs import CPU, STEPS, assert_same, begin, resume_run, snapshot, splits, tiny
from uiat.config import AWP, AnyConfig, Averaging
from uiat.engine import loop
from uiat.engine.pass_counter import PassCounter
from uiat.engine.setup import build_loader, build_state
from uiat.engine.state import State
from uiat.engine.step import make_optimizer, train_step
from uiat.errors import UserError
from uiat.methods import METHODS
from uiat.methods.weight_perturbation import default_gamma, perturb_weights
from uiat.runs.run_folder import RunFolder
from uiat.types import Batch, Clock

ON = AWP(enabled=True, gamma=0.05)


def config(method: str = "uiat", **changes: Any) -> AnyConfig:
    return tiny(method, awp=ON, checkpoint_minutes=0.0, **changes)


def views(state: State, plan: AnyConfig) -> list[Any]:
    _, batch = next(build_loader(plan, splits().train, CPU).epoch(1))
    state.model.train()
    found = [state.method.craft(state.model, part, Clock(1, 0, 3)) for part in batch.split(6)]
    state.method.prepare(state.model, found, Clock(1, 0, 3))
    return found


@pytest.mark.parametrize("method", ["sat", "trades", "uiat", "gradalign"])
def test_weights_come_back_bit_by_bit(method: str) -> None:
    plan = config(method)
    state = build_state(plan, splits().spec, CPU, None)
    parts = views(state, plan)
    own = {name: parameter.detach().clone() for name, parameter in state.model.named_parameters()}

    def fail() -> None:
        for name, parameter in state.model.named_parameters():
            moved = float((parameter.detach() - own[name]).norm() / own[name].norm().clamp(min=1e-9))
            assert moved == pytest.approx(0.05 if parameter.ndim > 1 else 0.0, abs=1e-5), name
        raise KeyError

    with pytest.raises(KeyError), perturb_weights(state.method, parts, Clock(1, 0, 3), gamma=0.05):
        fail()
    assert all(torch.equal(parameter, own[name]) for name, parameter in state.model.named_parameters())
    assert all(parameter.grad is None for parameter in state.model.parameters())


def run(method: str, micro_batch: int | None) -> State:
    """Make three epochs of three steps on a network without BatchNorm."""
    model, helper = network(0), network(1).requires_grad_(False)
    part = tiny(method).method.build(SPEC, seed=0, helper=helper).double()
    state = State(model, part, make_optimizer(model, 0.9, 5e-4), PassCounter(model))
    draw = torch.Generator().manual_seed(0)
    x = torch.rand((SPEC.num_samples, *SPEC.shape), generator=draw, dtype=torch.float64)
    y = torch.randint(SPEC.num_classes, (SPEC.num_samples,), generator=draw)
    for epoch in range(1, EPOCHS + 1):
        for step, index in enumerate(torch.randperm(len(x), generator=draw).split(BATCH)):
            batch = Batch(x[index], y[index], index)
            train_step(state, batch, Clock(epoch, step, EPOCHS), lr=0.05, micro_batch=micro_batch, awp=ON)
    return state


@pytest.mark.parametrize("method", METHODS)
def test_micro_batches_make_the_same_step(method: str) -> None:
    whole, parts = run(method, None), run(method, 5)
    for (name, expected), found in zip(whole.model.named_parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6, msg=name)
    z, other = z_of(whole), z_of(parts)
    if z is not None and other is not None:
        assert (z == other).double().mean() >= 0.999
    for mean, expected_mean in zip(parts.meter.means().items(), whole.meter.means().items(), strict=True):
        assert mean == pytest.approx(expected_mean)


@pytest.mark.parametrize("method", ["trades", "uiat-oneoff"])
def test_it_resumes_in_the_same_bits(method: str, tmp_path: Path) -> None:
    """With everything at once: averaging, micro-batches, no decay on BatchNorm, and a warm-up that ends in between."""
    awp = replace(ON, warmup=1)
    plan = tiny(method, awp=awp, checkpoint_minutes=0.0, averaging=Averaging(True), decay_norm=False, micro_batch=9)
    whole = snapshot(begin(plan, tmp_path / "whole"))
    for step in (STEPS - 1, STEPS + 2):
        assert_same(stopped_and_resumed(plan, tmp_path / str(step), step), whole)


def test_the_warm_up(tmp_path: Path) -> None:
    never = begin(tiny("sat", awp=replace(ON, warmup=3)), tmp_path / "never")
    plain = begin(tiny("sat"), tmp_path / "plain")
    late = begin(tiny("sat", awp=replace(ON, warmup=2)), tmp_path / "late")
    ours = [{k: v for k, v in snapshot(one).items() if "/last/" in k} for one in (never, plain, late)]
    assert ours[0] == ours[1] != ours[2]
    lines = [[line for line in one.read_metrics() if line["kind"] == "epoch"] for one in (plain, late)]
    assert lines[0][1]["loss"] == lines[1][1]["loss"]
    assert lines[0][2]["loss"] != lines[1][2]["loss"]


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("sample", "the part 'ce' of the loss"),
        ("logits", "the part 'ce' of the loss"),
        ("gradient", "the gradient of 'conv.weight'"),
        ("overflow", "the running variance of 'bn'"),
    ],
)
def test_a_fault_leaves_the_weights(kind: str, what: str, tmp_path: Path) -> None:
    plan = replace(config("uiat"), model=Faulty())
    plan = replace(plan, train=replace(plan.train, fast=kind != "overflow"))  # else the loss itself is not finite
    run = RunFolder.create(tmp_path / "run", plan)
    with script(kind, (2, 3)), pytest.raises(UserError, match="is not finite in epoch 2, step 3") as error:
        resume_run(run)
    assert what in str(error.value)
    assert "weights were not updated" in str(error.value)


def test_a_skipped_step_changes_nothing(tmp_path: Path) -> None:
    plan = replace(config("uiat", on_nonfinite="skip"), model=Faulty())
    state = build_state(plan, splits().spec, CPU, None)
    batches = list(build_loader(plan, splits().train, CPU).epoch(2))
    for step, batch in batches[:2]:
        assert train_step(state, batch, Clock(2, step, 3), lr=0.1, undo=True, awp=ON) is None
    before = {k: v.clone() for k, v in {**state.model.state_dict(), **state.method.state_dict()}.items()}
    with script("sample", (2, 3)):
        spoilt = vars(loop)["train_step"](state, batches[2][1], Clock(2, 2, 3), lr=0.1, undo=True, awp=ON)
    assert spoilt is not None
    after = {**state.model.state_dict(), **state.method.state_dict()}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_layer_without_gradient_stays() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 4))
    unused = nn.Linear(3, 3)
    model.add_module("unused", unused)
    model.forward = lambda x: model[2](model[1](model[0](x)))  # type: ignore[method-assign]
    method = METHODS["sat"].build(SPEC)
    state = State(model, method, make_optimizer(model, 0.9, 0.0), PassCounter(model))
    weight = unused.weight.detach().clone()
    x, y = torch.rand(8, 1, 8, 8), torch.arange(8) % 4
    assert train_step(state, Batch(x, y), Clock(1, 0, 1), lr=0.1, awp=ON) is None
    assert torch.equal(unused.weight, weight)


def test_gamma_follows_the_method() -> None:
    sizes = {name: default_gamma(METHODS[name].build(SPEC, helper=nn.Linear(1, 1))) for name in METHODS}
    assert sizes["sat"] == sizes["natural"] == sizes["n-fgsm"] == 0.01
    assert sizes["trades"] == sizes["uiat"] == sizes["mart"] == sizes["n-fgsm-uiat"] == 0.005
