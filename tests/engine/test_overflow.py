"""fp16 may skip steps until the scale settles; a gradient that overflows at every scale is a fault, as in float32."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.test_guards import leaves
from tests.support.failing_network import Faulty, run_process, script
from tests.support.moments import STEP, Killed, at_call, die
from tests.support.processes import fork_ranks
from tests.support.runs import CPU, STEPS, assert_same, begin, load_checkpoint, resume_run, snapshot, splits, tiny
from uiat.config import AnyConfig, Averaging
from uiat.engine import loop
from uiat.engine.guards import Fault
from uiat.engine.setup import build_loader, build_state
from uiat.engine.state import State
from uiat.engine.step import SETTLING
from uiat.errors import UserError
from uiat.runs.run_folder import RunFolder
from uiat.types import Batch, Clock

ALWAYS = tuple((epoch, step) for epoch in range(1, 20) for step in range(1, STEPS + 1))


def half(**changes: Any) -> AnyConfig:
    return replace(tiny(precision="fp16", averaging=Averaging(enabled=True), **changes), model=Faulty())


def begun() -> tuple[State, list[Batch]]:
    settings = half()
    data = splits(settings.data)
    state = build_state(settings, data.spec, CPU, None)
    return state, [batch for _, batch in build_loader(settings, data.train, CPU).epoch(1)]


def stepped(state: State, batches: list[Batch], number: int, **settings: Any) -> Fault | None:
    clock = Clock(1 + number // STEPS, number % STEPS, 20)
    return vars(loop)["train_step"](state, batches[clock.step], clock, lr=0.1, **settings)  # type: ignore[no-any-return]


def weights(state: State) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in state.model.parameters()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("scale", "tries"), [(2.0**16, 17), (2.0**40, SETTLING + 1), (2.0, 2)])
def test_a_gradient_that_is_never_finite_is_a_fault(scale: float, tries: int) -> None:
    state, batches = begun()
    state.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    before = weights(state)
    with script("gradient", *ALWAYS):
        found = [stepped(state, batches, number) for number in range(tries)]
    assert [fault is None for fault in found] == [True] * (tries - 1) + [False]
    assert found[-1] is not None
    assert found[-1].what == "the gradient of 'conv.weight'"
    assert same(weights(state), before)
    assert state.skipped == tries - 1
    assert state.average is not None
    assert state.average.updates == 0
    assert state.meter.samples == 0


def test_a_loss_that_is_not_finite_is_a_fault_at_once() -> None:
    state, batches = begun()
    with script("logits", (1, 1)):
        fault = stepped(state, batches, 0)
    assert fault is not None
    assert fault.what == "the part 'ce' of the loss"
    assert state.overflows == 0


def test_one_overflow_is_none() -> None:
    state, batches = begun()
    assert state.average is not None
    with script("gradient", (1, 2)):
        for number in range(4):
            before = weights(state)
            assert stepped(state, batches, number) is None
            assert same(weights(state), before) == (number == 1)
            assert state.overflows == int(number == 1)
    assert state.skipped == 1
    assert state.average.updates == 3
    assert state.meter.samples == sum(len(batch) for batch in batches) - len(batches[1])
    assert state.scaler.get_scale() == 2.0**15


def test_what_is_undone_leaves_no_trace_but_the_scale() -> None:
    state, batches = begun()

    def contents() -> dict[str, Any]:
        parts: list[Any] = [state.model, state.method, state.optimizer, state.meter, state.average]
        return copy.deepcopy({type(part).__name__: part.state_dict() for part in parts})

    with script("gradient", (1, 2)):
        stepped(state, batches, 0, undo=True)
        before = contents()
        assert stepped(state, batches, 1, undo=True) is None
        assert same([*leaves(before)], [*leaves(contents())])
        assert stepped(state, batches, 2, undo=True) is None
        assert not same([*leaves(before)], [*leaves(contents())])


@contextmanager
def starting_at(scale: float) -> Iterator[None]:
    """Within it, a scaler has this initial scale."""
    original = torch.amp.GradScaler
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.amp, "GradScaler", lambda kind, enabled: original(kind, init_scale=scale, enabled=enabled))
        yield


def test_a_run_stops(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", half())
    with starting_at(4.0), script("gradient", *ALWAYS), pytest.raises(UserError) as stopped:
        resume_run(run)
    assert "the gradient of 'conv.weight' is not finite in epoch 1, step 3" in str(stopped.value)
    assert (run.path / "nonfinite-1-3.safetensors").exists()


def test_a_run_that_skips_such_steps_counts_them(tmp_path: Path) -> None:
    with starting_at(4.0), script("gradient", (1, 2), (2, 1), (3, 3)):  # the third halving is below 1
        run = begin(half(on_nonfinite="skip"), tmp_path / "run")
    assert [line["skipped"] for line in run.read_metrics("epoch")] == [1, 1, 1]
    assert load_checkpoint(run)["average"]["updates"] == 3 * STEPS - 3
    with starting_at(4.0), script("gradient", *ALWAYS), pytest.raises(UserError, match="too many to skip"):
        begin(half(on_nonfinite="skip"), tmp_path / "other")


def test_a_kill_amid_overflows_changes_no_bit(tmp_path: Path) -> None:
    settings = half(checkpoint_minutes=0.0)
    places = ((1, 3), (2, 1), (2, 2), (2, 3), (3, 1))
    with script("gradient", *places):
        whole = snapshot(begin(settings, tmp_path / "whole"))
        run = RunFolder.create(tmp_path / "run", settings)
        with at_call(STEP, STEPS + 3, die), pytest.raises(Killed):
            resume_run(run)
        assert load_checkpoint(run)["overflows"] == 2
        assert load_checkpoint(run)["scaler"]["scale"] == 2.0**13
        assert resume_run(run)
    assert_same(run, whole)


def test_two_processes_skip_an_overflowing_step_together(tmp_path: Path) -> None:
    """Only the gradient of the second overflows; running statistics differ between processes until both skip."""
    with script():
        run = RunFolder.create(tmp_path / "run", half())
    command = ["train", "--resume", str(run.path), "--device", "cpu"]
    ends = fork_ranks(tmp_path, 2, run_process, "gradient", 1, [(2, 3)], tmp_path / "end", command)
    assert [code for code, _ in ends] == [0, 0], ends
    one, other = (torch.load(f"{tmp_path / 'end'}.{rank}", weights_only=True) for rank in (0, 1))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "epoch 2: 1 of 4 steps skipped" in run.log.read_text()
    with script():
        assert load_checkpoint(run)["average"]["updates"] == 3 * STEPS - 1
        assert load_checkpoint(run)["scaler"]["scale"] == 2.0**15
