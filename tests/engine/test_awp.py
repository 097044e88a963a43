"""Weight perturbation within runs: weights restored bit by bit, micro-batches, faults, resume."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.engine.test_accumulation import SPEC
from tests.engine.test_guards import WHAT
from tests.engine.test_resume import stopped_and_resumed
from tests.support.failing_network import Faulty, script
from tests.support.runs import CPU, STEPS, assert_same, begin, finished, resume_run, snapshot, splits, tiny, unbroken
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


@pytest.mark.parametrize("method", ["trades", "uiat-oneoff"])
def test_it_resumes_in_the_same_bits(method: str, tmp_path: Path) -> None:
    """With everything at once: averaging, micro-batches, no decay on BatchNorm, and a warm-up that ends in between."""
    awp = replace(ON, warmup=1)
    plan = tiny(method, awp=awp, checkpoint_minutes=0.0, averaging=Averaging(True), decay_norm=False, micro_batch=9)
    assert_same(stopped_and_resumed(plan, tmp_path / "run", STEPS - 1, 3), unbroken(plan))


def test_the_warm_up(tmp_path: Path) -> None:
    never = begin(tiny("sat", awp=replace(ON, warmup=3)), tmp_path / "never")
    plain = finished(tiny("sat"))
    late = begin(tiny("sat", awp=replace(ON, warmup=2)), tmp_path / "late")
    ours = [{k: v for k, v in snapshot(one).items() if "/last/" in k} for one in (never, plain, late)]
    assert ours[0] == ours[1] != ours[2]
    lines = [one.read_metrics("epoch") for one in (plain, late)]
    assert lines[0][1]["loss"] == lines[1][1]["loss"]
    assert lines[0][2]["loss"] != lines[1][2]["loss"]


@pytest.mark.parametrize(("kind", "what"), WHAT.items())
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
