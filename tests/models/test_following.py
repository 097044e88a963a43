"""The folded copy follows its network through every change of it, or is dropped."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.test_ordinary import noise, settled
from tests.support.networks import NormedLeNet
from uiat.attacks import PGD
from uiat.crafting import crafting
from uiat.models import ResNet, penultimate
from uiat.models.fast import AcceleratedModel, speed_up
from uiat.models.folding import AcceleratedCopy
from uiat.models.probe import Streams
from uiat.types import DataSpec


class Keeps(nn.Module):
    """Has tensors of its own beside its layers: a parameter, and a buffer that training re-assigns."""

    centre: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 10)
        self.scale = nn.Parameter(torch.rand(4, 1, 1) + 0.5)
        self.register_buffer("centre", torch.zeros(4, 1, 1))
        self.power = 1.0

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        if self.training:
            self.centre = 0.5 * self.centre + x.detach().mean((0, 2, 3))[:, None, None]
        x = (x + 2 * self.centre) * self.scale
        return self.power * self.linear(x.mean((2, 3)) + torch.tensor([1.0, 2.0, 3.0, 4.0]))  # type: ignore[no-any-return]


class Halved(Keeps):
    """With `features` and `head`, which are traced under other names."""

    def features(self, x: Tensor) -> Tensor:
        return ((F.relu(self.norm(self.conv(x))) + self.centre) * self.scale).mean((2, 3))

    def head(self, f: Tensor) -> Tensor:
        return self.linear(f)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def assert_follows(fast: AcceleratedModel) -> None:
    x, model = noise(6), fast.model
    with crafting(fast) as copy, torch.no_grad():
        assert isinstance(copy, AcceleratedCopy)
        torch.testing.assert_close(copy(x), model(x), rtol=1e-5, atol=1e-5)
        for ours, theirs in zip(penultimate(copy, x), penultimate(model, x), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert fast.folded_copy_is_valid(x[:2])


@pytest.mark.parametrize("make", [Keeps, Halved])
def test_tensors_that_are_replaced(make: type[Keeps]) -> None:
    model = settled(make)
    assert isinstance(model, Keeps)
    fast = speed_up(model, noise())
    assert_follows(fast)
    model.centre = model.centre + 1  # as a forward in training may do
    model.train()(noise(8))
    assert_follows(fast)
    other = {name: value + 0.1 if value.is_floating_point() else value for name, value in model.state_dict().items()}
    model.load_state_dict(other, assign=True)
    assert_follows(fast)
    model.scale = nn.Parameter(-model.scale.detach())
    assert_follows(fast)


@pytest.mark.parametrize(
    "make", [Keeps, Halved, NormedLeNet, lambda: ResNet((1, 1), 4).build(DataSpec(10, 9, (1, 8, 8)))]
)
def test_a_copy_of_another_type_is_not_used(make: Any) -> None:
    fast = speed_up(settled(make), noise())
    assert_follows(fast)
    fast.model.double()
    x = noise(4).double()
    with crafting(fast) as network:
        assert network is fast
        assert PGD(steps=2)(network, x, torch.arange(4)).dtype == torch.double
    assert fast.folded_copy_is_valid(x)
    fast.model.float()
    assert_follows(fast)


def test_a_copy_on_another_device_is_not_used() -> None:
    """On the meta device, which every machine has."""
    fast = speed_up(settled(NormedLeNet), noise())
    fast.model.to("meta")
    with crafting(fast) as network:
        assert network is fast
        assert network(noise().to("meta")).device.type == "meta"


def test_the_layout_that_the_network_can_run_in_is_kept() -> None:
    fast = speed_up(settled(NormedLeNet), noise())
    assert [c.weight.is_contiguous() for c in fast.crafting_network().modules() if isinstance(c, nn.Conv2d)] == [
        True
    ] * 2


def test_a_change_that_a_trace_cannot_see_ends_the_copy() -> None:
    model = settled(Keeps)
    assert isinstance(model, Keeps)
    fast = speed_up(model, noise())
    assert fast.folded_copy_is_valid(noise())
    assert fast.folds == 1
    model.power = 1.1
    assert not fast.folded_copy_is_valid(noise())
    assert fast.folds == 0
    assert fast.folded_copy_is_valid(noise()), "without a copy there is nothing to say"


def test_layers_that_are_replaced_end_the_copy() -> None:
    model = settled(Keeps)
    fast = speed_up(model, noise())
    model.conv = nn.Conv2d(1, 4, 5)
    assert not fast.folded_copy_is_valid(noise())
    with crafting(fast) as network:
        assert network is fast


def test_the_look_changes_nothing() -> None:
    model = settled(Keeps).train()
    fast = speed_up(model, noise())
    state, streams = {name: value.clone() for name, value in model.state_dict().items()}, Streams()
    assert fast.folded_copy_is_valid(noise())
    assert not streams.moved()
    assert [name for name, value in model.state_dict().items() if not torch.equal(value, state[name])] == []
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_weights_that_are_not_finite_are_no_sign_of_a_stale_copy() -> None:
    model = settled(Keeps)
    fast = speed_up(model, noise())
    with torch.no_grad():
        model.get_parameter("linear.bias").fill_(float("nan"))
    assert fast.folded_copy_is_valid(noise())
    assert fast.folds == 1
