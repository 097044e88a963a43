"""The folded copy follows its network through every change of it, or is dropped."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.ordinary import NormedLeNet
from tests.models.test_ordinary import noise, settled
from uiat.attacks import PGD
from uiat.crafting import crafting, crafting_copy
from uiat.models import ResNet, penultimate
from uiat.models.fast import speed_up, still_same
from uiat.models.trial import Streams
from uiat.types import DataSpec


class Keeps(nn.Module):
    """Has tensors of its own beside its layers: a parameter, a buffer that training re-assigns, and a plain one."""

    centre: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 10)
        self.scale = nn.Parameter(torch.rand(4, 1, 1) + 0.5)
        self.register_buffer("centre", torch.zeros(4, 1, 1))
        self.plain = torch.rand(4, 1, 1)
        self.power = 1.0

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        if self.training:
            self.centre = 0.5 * self.centre + x.detach().mean((0, 2, 3))[:, None, None]
        x = (x + 2 * self.centre) * self.scale + self.plain
        return self.power * self.linear(x.mean((2, 3)) + torch.tensor([1.0, 2.0, 3.0, 4.0]))  # type: ignore[no-any-return]


class Halved(Keeps):
    """With `features` and `head`, which are traced under other names."""

    def features(self, x: Tensor) -> Tensor:
        return ((F.relu(self.norm(self.conv(x))) + self.centre) * self.scale + self.plain).mean((2, 3))

    def head(self, f: Tensor) -> Tensor:
        return self.linear(f)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def assert_follows(model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    x = noise(6).to(dtype)
    with crafting(model) as copy, torch.no_grad():
        assert copy is not model
        torch.testing.assert_close(copy(x), model(x), rtol=1e-5, atol=1e-5)
        for ours, theirs in zip(penultimate(copy, x), penultimate(model, x), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert still_same(model, x[:2])


@pytest.mark.parametrize("make", [Keeps, Halved])
def test_tensors_that_are_replaced(make: type[Keeps]) -> None:
    model = settled(make)
    assert isinstance(model, Keeps)
    assert speed_up(model, noise()) is not None
    assert_follows(model)
    model.centre = model.centre + 1  # as a forward in training may do
    model.train()(noise(8))
    model.plain = 2 * model.plain
    assert_follows(model)
    other = {name: value + 0.1 if value.is_floating_point() else value for name, value in model.state_dict().items()}
    model.load_state_dict(other, assign=True)
    assert_follows(model)
    model.scale = nn.Parameter(-model.scale.detach())
    assert_follows(model)


@pytest.mark.parametrize(
    "make", [Keeps, Halved, NormedLeNet, lambda: ResNet((1, 1), 4).build(DataSpec(10, 9, (1, 8, 8)))]
)
def test_another_type(make: Any) -> None:
    model = settled(make)
    assert speed_up(model, noise()) is not None
    for dtype in (torch.double, torch.float):
        model.to(dtype)
        if isinstance(model, Keeps):
            model.plain = model.plain.to(dtype)
        x = noise(4).to(dtype)
        with crafting(model) as network:
            assert PGD(steps=2)(network, x, torch.arange(4)).dtype == dtype
        assert_follows(model, dtype)


def test_another_device() -> None:
    """With the device that computes shapes alone, which every machine has."""
    model = settled(Keeps)
    assert isinstance(model, Keeps)
    assert speed_up(model, noise()) is not None
    model.to("meta")
    model.plain = model.plain.to("meta")
    with crafting(model) as copy:
        assert copy is not model
        assert copy(noise().to("meta")).device.type == "meta"


def test_a_layout_survives_another_type() -> None:
    model = settled(NormedLeNet)
    copy = speed_up(model, noise())
    assert copy is not None
    assert [conv.weight.is_contiguous() for conv in copy.modules() if isinstance(conv, nn.Conv2d)] == [True, True]
    model.double()
    with crafting(model):
        folded = [conv for conv in copy.modules() if isinstance(conv, nn.Conv2d)]
        assert [(conv.weight.dtype, conv.weight.is_contiguous()) for conv in folded] == [(torch.double, True)] * 2


def test_a_change_that_a_trace_cannot_see_ends_the_copy() -> None:
    model = settled(Keeps)
    assert isinstance(model, Keeps)
    assert speed_up(model, noise()) is not None
    assert still_same(model, noise())
    assert crafting_copy(model) is not None
    model.power = 1.1
    assert not still_same(model, noise())
    assert crafting_copy(model) is None
    assert still_same(model, noise()), "without a copy there is nothing to say"


def test_layers_that_are_replaced_end_the_copy() -> None:
    model = settled(Keeps)
    assert speed_up(model, noise()) is not None
    model.conv = nn.Conv2d(1, 4, 5)
    assert not still_same(model, noise())
    with crafting(model) as network:
        assert network is model


def test_the_look_changes_nothing() -> None:
    model = settled(Keeps).train()
    copy = speed_up(model, noise())
    assert copy is not None
    heard: list[Tensor] = []
    copy.listeners.append(heard.append)
    state, streams = {name: value.clone() for name, value in model.state_dict().items()}, Streams()
    assert still_same(model, noise())
    assert heard == []
    assert not streams.moved()
    assert [name for name, value in model.state_dict().items() if not torch.equal(value, state[name])] == []
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_weights_that_are_not_finite_are_no_sign_of_a_stale_copy() -> None:
    model = settled(Keeps)
    assert speed_up(model, noise()) is not None
    with torch.no_grad():
        model.get_parameter("linear.bias").fill_(float("nan"))
    assert still_same(model, noise())
    assert crafting_copy(model) is not None
