"""The three modes of BatchNorm while crafting; everything is restored afterwards."""

import pytest
import torch
from torch import Tensor, nn

from uiat.crafting import Crafting, crafting


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.BatchNorm2d(3)).train()


def statistics(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


@pytest.mark.parametrize(
    ("mode", "uses_batch", "moves"), [("eval", False, False), ("train", True, True), ("batch", True, False)]
)
def test_which_statistics_are_used_and_which_move(mode: Crafting, uses_batch: bool, moves: bool) -> None:
    model, x = network(), torch.rand(4, 1, 5, 5)
    expected = network().train(uses_batch)(x)
    before = statistics(model)
    with crafting(model, mode) as crafted:
        found = crafted(x)
    assert torch.equal(found, expected)
    after = statistics(model)
    assert all(torch.equal(before[name], after[name]) for name in before) is not moves


@pytest.mark.parametrize("mode", ["eval", "train", "batch"])
def test_flags_come_back_after_an_error(mode: Crafting) -> None:
    model = network()
    model[1].eval()  # frozen on purpose
    model[0].bias.requires_grad_(False)
    with pytest.raises(ZeroDivisionError), crafting(model, mode):
        print(1 / sum(parameter.requires_grad for parameter in model.parameters()))  # all are frozen
    assert [module.training for module in model] == [True, False, True]
    assert [norm.track_running_stats for norm in (model[1], model[2])] == [True, True]
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["0.bias"]


def test_a_frozen_batchnorm_keeps_its_running_statistics() -> None:
    """A layer in eval mode normalises with its running statistics, whatever the crafting."""
    model, x = network(), torch.rand(4, 1, 5, 5)
    model.eval()
    with crafting(model, "batch") as crafted:
        assert torch.equal(crafted(x), network().eval()(x))
