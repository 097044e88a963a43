"""AdamW beside plain torch, its state in a checkpoint, and its place in the key of a result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.engine.test_resume import stopped_and_resumed
from tests.support.runs import STEPS, assert_same, begin, load_checkpoint, resume_run, tiny, unbroken
from uiat.config import AWP, Averaging, Schedule
from uiat.config_json import to_json
from uiat.engine.pass_counter import PassCounter
from uiat.engine.state import State
from uiat.engine.step import make_optimizer, train_step
from uiat.errors import UserError
from uiat.io import write_sealed
from uiat.methods import Natural
from uiat.runs.run_folder import RunFolder
from uiat.types import Batch, Clock, DataSpec

SPEC = DataSpec(3, 40, (6,))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).double()


@pytest.mark.parametrize("low_momentum", [None, 0.85])
@pytest.mark.parametrize("decay_norm", [True, False])
def test_adamw_is_a_plain_loop_with_torchs(decay_norm: bool, low_momentum: float | None) -> None:
    ours, theirs, steps, schedule = network(), network(), 12, Schedule(lr=0.01, low_momentum=low_momentum)
    optimizer = make_optimizer(ours, 0.95, 0.1, decay_norm=decay_norm, name="adamw")
    state = State(ours, Natural().build(SPEC), optimizer, PassCounter(ours))
    groups: list[dict[str, Any]] = [{"params": theirs.parameters()}]
    if not decay_norm:
        weights = [p for name, p in theirs.named_parameters() if not name.startswith("1.")]
        groups = [{"params": weights}, {"params": theirs[1].parameters(), "weight_decay": 0.0}]
    plain = torch.optim.AdamW(groups, lr=0.01, betas=(0.95, 0.999), weight_decay=0.1)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        plain, 0.01, total_steps=steps, pct_start=0.25, cycle_momentum=low_momentum is not None
    )
    for step in range(steps):
        x, y = torch.rand(10, 6, dtype=torch.float64), torch.randint(3, (10,))
        rate, momentum = schedule.at(step, steps), schedule.momentum_at(step, steps, 0.95)
        assert train_step(state, Batch(x, y), Clock(1, step, 1), lr=rate, momentum=momentum) is None
        plain.zero_grad()
        F.cross_entropy(theirs(x), y).backward()
        plain.step()
        if step + 1 < steps:
            cycle.step()
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12, msg=name)
        assert not torch.equal(one, dict(network().named_parameters())[name])


@pytest.mark.parametrize(
    "changes",
    [{"awp": AWP(enabled=True), "averaging": Averaging(enabled=True), "decay_norm": False}, {"precision": "fp16"}],
    ids=["AWP and averaging", "fp16"],
)
def test_it_resumes_in_the_same_bits(changes: dict[str, Any], tmp_path: Path) -> None:
    options = {"schedule": Schedule(lr=0.01, low_momentum=0.8), "checkpoint_minutes": 0.0, **changes}
    config = tiny("uiat", optimizer="adamw", **options)
    run = stopped_and_resumed(config, tmp_path / "run", STEPS + 2, 2)
    assert_same(run, unbroken(config))
    assert unbroken(config)["/last/bn1.weight"] != unbroken(tiny("uiat"))["/last/bn1.weight"]


def test_buffers_of_another_network_are_refused(tmp_path: Path) -> None:
    run = begin(tiny("natural", optimizer="adamw", epochs=1), tmp_path / "run")

    saved = load_checkpoint(run)
    saved["optimizer"]["state"][0]["exp_avg_sq"] = torch.zeros(2)
    write_sealed(run.checkpoint, saved)
    with pytest.raises(UserError, match="does not fit the run's configuration"):
        resume_run(RunFolder.open(run.path))


def test_the_optimiser_is_in_a_key_only_if_it_is_not_sgd() -> None:
    config = tiny("sat")
    assert "optimizer" not in to_json(config, key=True)["train"]
    assert to_json(config)["train"]["optimizer"] == "sgd"
    other = replace(config, train=replace(config.train, optimizer="adamw"))
    assert to_json(other, key=True)["train"]["optimizer"] == "adamw"
