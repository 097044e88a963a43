"""Trials of a network: they leave no trace, and each mistake that they find is one message."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.calls import missing_facts
from uiat import DataSpec, UserError
from uiat.models import Imported
from uiat.models.probe import Streams, try_network, untouched


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


DATA = DataSpec(num_classes=3, num_samples=20, shape=(1, 8, 8))
CONFIG = Imported("mine:build")


def good(classes: int = 3, side: int = 8) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(side * side, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, classes)
    )


class Wrapped(nn.Module):
    """Changes the logits of a valid network."""

    def __init__(self, change: Any, classes: int = 3, side: int = 8):
        super().__init__()
        self.inner, self.change = good(classes, side), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.inner(x))


MISTAKES: dict[str, tuple[nn.Module, str]] = {
    "logits": (good(5), "5 logits 3 outputs"),
    "tuple": (Wrapped(lambda out: (out, out)), "tuple 2 tensor logits"),
    "dict": (Wrapped(lambda out: {"out": out}), "dict 1 tensor logits"),
    "object": (
        Wrapped(lambda out: SimpleNamespace(logits=out)),
        "SimpleNamespace tensor uiat.logits_of",
    ),
    "rows": (
        Wrapped(lambda out: out[:1]),
        "'(1, 3)' '2 samples' '3 classes' '(2, 3)'",
    ),
    "maps": (Wrapped(lambda out: out[..., None]), "'(2, 3, 1)' '2 samples' '3 classes'"),
    "nan": (Wrapped(lambda out: out * float("nan")), "NaN logits"),
    "frozen": (good().requires_grad_(False), "parameter"),
    "size": (good(side=16), "evaluation '(2, 1, 8, 8)' RuntimeError"),
    "custom exception": (
        Wrapped(lambda out: [][1]),
        "evaluation '(2, 1, 8, 8)' IndexError",
    ),
    "detached": (Wrapped(lambda out: out.detach()), "gradient evaluation"),
    "input": (
        nn.Sequential(Wrapped(lambda out: out.detach()), nn.Linear(3, 3)),
        "gradient input attack",
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake(kind: str) -> None:
    network, facts = MISTAKES[kind]
    with pytest.raises(UserError) as caught:
        try_network(network, CONFIG, DATA)
    assert missing_facts(str(caught.value), f"mine:build {facts}") == []
    assert "\n" not in str(caught.value)


def test_a_mistake_only_in_training_mode() -> None:
    network = Wrapped(lambda out: out)
    network.change = lambda out: (out, out) if network.training else out
    with pytest.raises(UserError, match=r"mine:build, .*training .*tuple of 2"):
        try_network(network, CONFIG, DATA)


def test_a_good_network_and_the_streams_are_unchanged() -> None:
    network = good().eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    streams = torch.get_rng_state(), random.getstate()
    try_network(network, CONFIG, DATA)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(module.training for module in network.modules())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.equal(torch.get_rng_state(), streams[0])
    assert random.getstate() == streams[1]
