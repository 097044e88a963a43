"""The memory layout of convolutions: channels_last where the network can be trained in it, else unchanged."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.test_folding import facts, images, settled
from tests.support import networks
from uiat.methods import METHODS
from uiat.models import PreActResNet, ResNet, WideResNet
from uiat.models.fast import keeps_channels_last, speed_up, to_channels_last
from uiat.types import Batch, Clock, DataSpec

SHAPE = (1, 8, 8)
CASES: dict[type[nn.Module], tuple[int, bool]] = {
    networks.LeNet: (0, False),
    networks.NormedLeNet: (2, False),
    networks.WeightStandardised: (1, False),
    networks.Volumes: (1, True),
    networks.GlobalContext: (1, True),
    networks.Sizes: (1, True),
}
"""Networks, how many BatchNorms can be folded, and whether they can be trained in channels_last memory."""


@pytest.mark.parametrize("make", CASES)
def test_typical_networks(make: type[nn.Module]) -> None:
    model = settled(make, SHAPE)
    before = facts(model)
    fast = speed_up(to_channels_last(model, images(SHAPE)), images(SHAPE))
    assert (fast.folds, keeps_channels_last(model)) == CASES[make]
    after = facts(model)
    strides = [{name: value for name, (_, value) in found.pop("tensors").items()} for found in (before, after)]  # type: ignore[attr-defined]
    assert (after, strides[1]) == (before, strides[0])
    batch = Batch(images(SHAPE), torch.arange(4), torch.arange(4))
    METHODS["uiat"].build(DataSpec(10, 24, SHAPE))(fast, batch, Clock(1, 0, 2)).total.backward()


def test_a_network_without_a_trial_goes_to_channels_last_at_once() -> None:
    model = networks.LeNet()
    assert keeps_channels_last(to_channels_last(model))
    with pytest.raises(RuntimeError, match="view"):
        model(images(SHAPE))


class Broken(nn.Module):
    """Computes other values in channels_last memory, without an error."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(1, 4, 3), nn.Linear(144, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.linear(x.as_strided((len(x), 144), (144, 1)))  # type: ignore[no-any-return]


class InTraining(nn.Module):
    """Can be evaluated but not trained in channels_last memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(1, 4, 3), nn.Linear(144, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.conv(x), 0.5, self.training)
        return self.linear(x.view(len(x), -1) if self.training else x.flatten(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [Broken, InTraining])
def test_a_wrong_result_or_a_failure_in_training_takes_the_layout_back(make: type[nn.Module]) -> None:
    model = make()
    strides = [parameter.stride() for parameter in model.parameters()]
    weights = [id(parameter) for parameter in model.parameters()]
    assert not keeps_channels_last(to_channels_last(model, images(SHAPE)))
    assert [parameter.stride() for parameter in model.parameters()] == strides
    assert [id(parameter) for parameter in model.parameters()] == weights


def test_training_in_channels_last_memory_gives_the_right_gradients() -> None:
    """Few channels, images that are not square: where a strided 1×1 convolution of oneDNN writes beyond its memory."""
    for make in (
        ResNet(blocks=(1, 1), width=4),
        PreActResNet(blocks=(1, 1), width=4),
        WideResNet(depth=10, widen=1),
    ):
        torch.manual_seed(0)
        plain = make.build(DataSpec(3, 8, (3, 64, 48)))
        last = to_channels_last(copy.deepcopy(plain))
        assert any(
            p.is_contiguous(memory_format=torch.channels_last) and p.ndim == 4 and p.shape[2] > 1
            for p in last.parameters()
        )
        x, y = torch.rand(8, 3, 64, 48), torch.arange(8) % 3
        for model in (plain, last):
            for _ in range(5):
                model.zero_grad()
                F.cross_entropy(model(x), y).backward()
        for ours, theirs in zip(last.parameters(), plain.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            assert (ours.grad - theirs.grad).norm() <= 1e-2 * theirs.grad.norm() + 1e-4


def test_a_strided_pointwise_convolution_keeps_its_memory() -> None:
    first = nn.Conv2d(3, 8, 3)
    to_channels_last(nn.Sequential(first, nn.Conv2d(8, 8, 1, stride=2), nn.Flatten(), nn.Linear(72, 4)))
    assert first.weight.is_contiguous()
