"""Learning rates, against torch's and against values computed by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.moments import STEP
from tests.support.runs import STEPS, begin, tiny
from uiat.config import Schedule
from uiat.engine.state import State
from uiat.engine.step import train_step


def torch_one_cycle(lr: float, steps: int, warmup: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=lr, total_steps=steps, pct_start=warmup, cycle_momentum=False
    )
    rates = []
    for step in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        if step + 1 < steps:
            schedule.step()
    return rates


@pytest.mark.parametrize("lr", [0.1, 0.2])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 8, 20, 97, 100, 1000])
def test_one_cycle_is_torchs(lr: float, steps: int) -> None:
    schedule = Schedule(lr=lr)
    found = [schedule.at(step, steps) for step in range(steps)]
    assert found == pytest.approx(torch_one_cycle(lr, steps, 0.25), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("warmup", [0.1, 0.3, 0.5])
def test_one_cycle_with_another_warm_up(warmup: float) -> None:
    schedule = Schedule(lr=0.3, warmup=warmup)
    found = [schedule.at(step, 60) for step in range(60)]
    assert found == pytest.approx(torch_one_cycle(0.3, 60, warmup), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.25), (2, 0.25), (5, 0.25), (20, 0.25), (97, 0.25), (60, 0.4)])
def test_rate_and_momentum_equal_torchs_one_cycle(steps: int, warmup: float) -> None:
    """OneCycleLR with its default momenta, as HAT's authors use it: 0.95, 0.85 at the largest rate, 0.95."""
    schedule = Schedule(lr=0.21, warmup=warmup, low_momentum=0.85)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.21, momentum=0.9)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.21, total_steps=steps, pct_start=warmup)
    for step in range(steps):
        (group,) = optimizer.param_groups
        assert schedule.at(step, steps) == pytest.approx(group["lr"], rel=1e-9, abs=1e-15)
        assert schedule.momentum_at(step, steps, 0.95) == pytest.approx(group["momentum"], abs=1e-12)
        optimizer.step()
        if step + 1 < steps:
            cycle.step()


def test_one_cycle_by_hand() -> None:
    schedule = Schedule(lr=0.1)
    assert schedule.at(0, 100) == pytest.approx(0.004)
    assert schedule.at(24, 100) == pytest.approx(0.1)
    assert schedule.at(99, 100) == pytest.approx(4e-7)
    assert max(schedule.at(step, 100) for step in range(100)) == pytest.approx(0.1)
    assert schedule.at(0, 4) == pytest.approx(0.1)  # a warm-up of a single step, where torch divides by zero


def test_piecewise_by_hand() -> None:
    schedule = Schedule(name="piecewise", lr=0.1)
    found = [schedule.at(step, 8) for step in range(8)]
    assert found == pytest.approx([0.1] * 4 + [0.01] * 2 + [0.001] * 2)
    thirds = Schedule(name="piecewise", lr=1.0, milestones=(1 / 3,), factor=0.5)
    assert [thirds.at(step, 6) for step in range(6)] == pytest.approx([1, 1, 0.5, 0.5, 0.5, 0.5])
    assert Schedule(name="piecewise", lr=0.3, milestones=()).at(99, 100) == 0.3


def test_triangular_by_hand() -> None:
    schedule = Schedule(name="triangular", lr=0.2, warmup=0.5)
    found = [schedule.at(step, 8) for step in range(8)]
    assert found == pytest.approx([0, 0.05, 0.1, 0.15, 0.2, 0.15, 0.1, 0.05])
    early = Schedule(name="triangular", lr=0.3, warmup=0.25)
    assert [early.at(step, 8) for step in range(4)] == pytest.approx([0, 0.15, 0.3, 0.25])
    assert Schedule(name="triangular", lr=0.2, warmup=0.0).at(0, 10) == pytest.approx(0.2)


def test_rate_and_momentum_equal_torchs_cyclic_schedule() -> None:
    """CyclicLR as N-FGSM's authors use it: the momentum falls from 0.9 to 0.8 while the rate rises, and back."""
    schedule = Schedule(name="triangular", lr=0.2, warmup=0.5, low_momentum=0.8)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2, momentum=0.9)
    steps = 12
    cyclic = torch.optim.lr_scheduler.CyclicLR(
        optimizer, base_lr=0.0, max_lr=0.2, step_size_up=steps // 2, step_size_down=steps // 2
    )
    for step in range(steps):
        (group,) = optimizer.param_groups
        assert schedule.at(step, steps) == pytest.approx(group["lr"], abs=1e-12)
        assert schedule.momentum_at(step, steps, 0.9) == pytest.approx(group["momentum"], abs=1e-12)
        optimizer.step()
        cyclic.step()


@pytest.mark.parametrize(("name", "low"), [("triangular", 0.5), ("onecycle", 0.5), ("piecewise", None)])
def test_a_run_follows_it(name: Any, low: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, others = [], set()

    def watched(state: State, *args: Any, **options: Any) -> None:
        train_step(state, *args, **options)
        (group,) = state.optimizer.param_groups
        found.append((group["lr"], group["momentum"]))
        others.add((group["nesterov"], group["weight_decay"], group["dampening"]))

    monkeypatch.setattr(STEP, watched)
    schedule = Schedule(name=name, lr=0.1, warmup=0.5, low_momentum=low)
    begin(tiny("natural", schedule=schedule, momentum=0.8, nesterov=low is None, weight_decay=1e-3), tmp_path / "run")
    steps = 3 * STEPS
    assert found == [(schedule.at(step, steps), schedule.momentum_at(step, steps, 0.8)) for step in range(steps)]
    assert others == {(low is None, 1e-3, 0)}
    assert (min(momentum for _, momentum in found) < 0.6) == (low is not None)


def test_a_rate_of_zero_does_not_change_the_momentum() -> None:
    assert Schedule(name="triangular", lr=0.0, low_momentum=0.8).momentum_at(3, 10, 0.9) == 0.9
