"""Typical custom networks are trained and attacked, with or without the fast path; none of them fails."""

import copy
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support import networks as ordinary
from uiat.crafting import crafting
from uiat.methods import METHODS
from uiat.models.fast import speed_up, to_channels_last
from uiat.models.layout import keeps_channels_last
from uiat.types import Batch, Clock, DataSpec

SPEC = DataSpec(num_classes=10, num_samples=24, shape=(1, 8, 8))
NETWORKS: dict[type[nn.Module], tuple[int, bool]] = {
    ordinary.LeNet: (0, False),
    ordinary.NormedLeNet: (2, False),
    ordinary.WeightStandardised: (1, False),
    ordinary.Volumes: (1, True),
    ordinary.GlobalContext: (1, True),
    ordinary.Sizes: (1, True),
}
"""Networks, how many BatchNorms can be folded, and whether they can be trained in channels_last memory."""


def settled(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    model = make().train()
    with torch.no_grad():
        for _ in range(3):
            model(2 * torch.rand(8, 1, 8, 8))
    return model


def noise(samples: int = 2) -> Tensor:
    return torch.rand(samples, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("make", NETWORKS)
def test_the_fast_path_of_ordinary_networks(make: type[nn.Module]) -> None:
    folds, last = NETWORKS[make]
    plain = settled(make)
    model = copy.deepcopy(plain)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    streams = torch.get_rng_state()
    found = speed_up(to_channels_last(model, noise()), noise())
    assert (found.folds, keeps_channels_last(model)) == (folds, last)
    assert torch.equal(torch.get_rng_state(), streams)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert all(module.training for module in model.modules())
    g = torch.Generator().manual_seed(2)
    batch = Batch(torch.rand(12, 1, 8, 8, generator=g), torch.arange(12) % 10, torch.arange(12))
    for network in (plain, found):
        METHODS["uiat"].build(SPEC)(network, batch, Clock(1, 0, 2)).total.backward()
    with crafting(found) as attacked, torch.no_grad():
        torch.testing.assert_close(attacked(batch.x), plain.eval()(batch.x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [ordinary.Rolls, ordinary.NumpyRolls, ordinary.OwnRolls])
def test_chance_of_any_kind_is_not_folded_away(make: type[nn.Module]) -> None:
    for attempt in range(10):
        model = settled(make)
        random.seed(attempt)
        np.random.seed(attempt)
        before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
        assert speed_up(model, noise()).folds == 0
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index]


def test_a_network_without_a_trial_goes_to_channels_last_at_once() -> None:
    model = ordinary.LeNet()
    assert keeps_channels_last(to_channels_last(model))
    with pytest.raises(RuntimeError, match="view"):
        model(noise())


class Broken(nn.Module):
    """Computes something else in channels_last memory, without an error."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(1, 4, 3), nn.Linear(144, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.linear(x.as_strided((len(x), 144), (144, 1)))  # type: ignore[no-any-return]


class InTraining(nn.Module):
    """Cannot run in channels_last memory when it is trained; while it is evaluated it can."""

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
    assert not keeps_channels_last(to_channels_last(model, noise()))
    assert [parameter.stride() for parameter in model.parameters()] == strides
    assert [id(parameter) for parameter in model.parameters()] == weights


def test_folding_draws_nothing() -> None:
    """New convolutions draw no weights: on a GPU that would move its stream."""
    model = settled(ordinary.NormedLeNet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Conv2d, "reset_parameters", lambda conv: pytest.fail("weights were drawn"))
        assert speed_up(model, noise()).folds == 2
