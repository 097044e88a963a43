"""Which parameters get weight decay."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.engine.test_resume import stopped_and_resumed
from tests.support.runs import assert_same, tiny, unbroken
from uiat.engine.step import make_optimizer


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4, bias=False), nn.LayerNorm(4))


@pytest.mark.parametrize("decay_norm", [True, False])
def test_decay_with_no_gradient(decay_norm: bool) -> None:
    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(2.0)
    optimizer = make_optimizer(model, 0.9, 0.1, decay_norm=decay_norm)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 1.0
    optimizer.step()
    moved = {name for name, parameter in model.named_parameters() if bool((parameter != 2).any())}
    linear, norms = {"0.weight", "0.bias", "2.weight"}, {"1.weight", "1.bias", "3.weight", "3.bias"}
    assert moved == (linear | norms if decay_norm else linear)


def test_frozen_parameters_stay_out() -> None:
    model = network()
    model[1].weight.requires_grad_(False)
    optimizer = make_optimizer(model, 0.9, 0.1, decay_norm=False)
    assert [len(group["params"]) for group in optimizer.param_groups] == [3, 3]


def test_it_changes_a_run_and_resumes(tmp_path: Path) -> None:
    config = tiny("sat", decay_norm=False, weight_decay=0.05, checkpoint_minutes=0.0)
    assert_same(stopped_and_resumed(config, tmp_path / "run", 6), unbroken(config))
    assert unbroken(tiny("sat", weight_decay=0.05))["/last/bn1.weight"] != unbroken(config)["/last/bn1.weight"]
