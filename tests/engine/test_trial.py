"""The trial of a network before a run: each mistake is one message, and a good network is left as it was."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from uiat import DataSpec, UserError
from uiat.models import Imported
from uiat.models.probe import try_network

DATA = DataSpec(num_classes=3, num_samples=20, shape=(1, 8, 8))
CONFIG = Imported("mine:build")


def good(classes: int = 3, side: int = 8) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(side * side, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, classes)
    )


class Wrapped(nn.Module):
    """Does something with the logits of a good network."""

    def __init__(self, change: Any, classes: int = 3, side: int = 8):
        super().__init__()
        self.inner, self.change = good(classes, side), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.inner(x))


MISTAKES: dict[str, tuple[nn.Module, str]] = {
    "logits": (good(5), "returns 5 logits a sample, but the data has 3 classes: give its last layer 3 outputs."),
    "tuple": (Wrapped(lambda out: (out, out)), "returns a tuple of 2, not a tensor: return only the logits."),
    "dict": (Wrapped(lambda out: {"out": out}), "returns a dict of 1, not a tensor: return only the logits."),
    "object": (
        Wrapped(lambda out: SimpleNamespace(logits=out)),
        "returns a SimpleNamespace, not a tensor: return only the logits (its .logits, as uiat.logits_of does).",
    ),
    "rows": (
        Wrapped(lambda out: out[:1]),
        "returns a tensor of shape (1, 3) for 2 samples of 3 classes: return one row per sample and one logit per "
        "class, (2, 3).",
    ),
    "maps": (Wrapped(lambda out: out[..., None]), "returns a tensor of shape (2, 3, 1) for 2 samples of 3 classes"),
    "nan": (Wrapped(lambda out: out * float("nan")), "returns NaN or infinite logits before any training"),
    "frozen": (good().requires_grad_(False), "has no parameter to train"),
    "size": (good(side=16), "fails in evaluation mode on a batch of shape (2, 1, 8, 8) (RuntimeError: "),
    "own words": (Wrapped(lambda out: [][1]), "fails in evaluation mode on a batch of shape (2, 1, 8, 8) (IndexError:"),
    "detached": (Wrapped(lambda out: out.detach()), "the gradient of the network mine:build fails in evaluation mode"),
    "input": (
        nn.Sequential(Wrapped(lambda out: out.detach()), nn.Linear(3, 3)),
        "has no gradient for its input, which an attack needs",
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake(kind: str) -> None:
    network, message = MISTAKES[kind]
    with pytest.raises(UserError) as caught:
        try_network(network, CONFIG, DATA)
    assert message in str(caught.value)
    assert "the network mine:build" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistake_only_in_training_mode() -> None:
    network = Wrapped(lambda out: out)
    network.change = lambda out: (out, out) if network.training else out
    with pytest.raises(UserError, match="mine:build, in training mode, returns a tuple of 2"):
        try_network(network, CONFIG, DATA)


def test_a_good_network_and_the_streams_stay_as_they_were() -> None:
    network = good().eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    streams = torch.get_rng_state(), random.getstate()
    try_network(network, CONFIG, DATA)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(module.training for module in network.modules())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.equal(torch.get_rng_state(), streams[0])
    assert random.getstate() == streams[1]
