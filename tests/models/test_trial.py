"""A trial of a network leaves no trace."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from uiat.models.probe import Streams, untouched


class Busy(nn.Module):
    """Changes everything that a forward pass can change."""

    running: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.register_buffer("running", torch.zeros(4))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = x
        self.running = 0.5 * self.running + x.mean(0).detach()
        with torch.no_grad():
            self.linear.weight.mul_(0.9)
        random.random()
        np.random.rand()
        return self.drop(self.norm(self.linear(x)))  # type: ignore[no-any-return]


def test_all_is_put_back() -> None:
    model = Busy()
    model.linear.bias.requires_grad_(False)
    model.norm.eval()
    model.linear.weight.grad = kept = torch.ones(4, 4)
    before: dict[str, Any] = {name: value.clone() for name, value in model.state_dict().items()}
    tensors = [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    flags = [parameter.requires_grad for parameter in model.parameters()]
    modes = [module.training for module in model.modules()]
    with untouched(model) as streams:
        model.train()
        model.requires_grad_(True)
        model(torch.rand(8, 4)).sum().backward()
        assert streams.moved()
        assert model.calls == 1
    assert not streams.moved()
    assert model.calls == 0
    assert not hasattr(model, "last")
    assert [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])] == []
    assert [id(tensor) for tensor in (*model.parameters(), *model.buffers())] == tensors
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert [module.training for module in model.modules()] == modes
    assert model.linear.weight.grad is kept
    assert model.norm.weight.grad is None


def test_an_error_goes_through_and_all_is_put_back() -> None:
    model = Busy()
    with pytest.raises(RuntimeError), untouched(model):
        model(torch.rand(8, 3))
    assert model.calls == 0
    assert not model.running.any()


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, np.random.rand])
def test_a_draw_is_noticed_and_taken_back(draw: Any) -> None:
    streams = Streams()
    assert not streams.moved()
    first = draw()
    assert streams.moved()
    streams.restore()
    assert not streams.moved()
    assert draw() == first
