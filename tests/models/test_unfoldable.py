"""Models that must not be folded or cannot be traced remain unchanged."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.foldable import assert_same, images, must_fold, settled, stack, tail
from uiat.models.fast import speed_up
from uiat.models.features import Features
from uiat.models.folding import folded_copy


class TwoReaders(nn.Module):
    """The convolution's output is read by the BatchNorm and by the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.tail = nn.Sequential(*tail(4))

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv(x)
        return self.tail(self.norm(out) + out)  # type: ignore[no-any-return]


class SharedConv(nn.Module):
    """One convolution before two BatchNorms."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.tail = nn.Sequential(*tail(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.second(self.conv(self.first(self.conv(x)))))  # type: ignore[no-any-return]


class SharedNorm(nn.Module):
    """One BatchNorm after two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.tail = nn.Sequential(*tail(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.norm(self.second(self.norm(self.first(x)))))  # type: ignore[no-any-return]


class Branch(nn.Module):
    """A BatchNorm in a branch that reads an activation, and one that reads a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.branch, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.tail = nn.Sequential(*tail(4))

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv(x).relu()
        return self.tail(self.norm(out + self.branch(out)))  # type: ignore[no-any-return]


class Reassigned(nn.Module):
    """Layers under two names each."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.again, self.once_more = self.conv, self.norm
        self.tail = nn.Sequential(*tail(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.once_more(self.again(self.norm(self.conv(x)))))  # type: ignore[no-any-return]


def batch_statistics() -> nn.Module:
    return stack(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))


def old_weight_norm() -> nn.Module:
    """Its weight is recomputed by a hook at each call."""
    with pytest.warns(FutureWarning):
        conv: nn.Conv2d = torch.nn.utils.weight_norm(nn.Conv2d(3, 4, 3))  # type: ignore[deprecated, unused-ignore]
    return stack(conv)


def parametrized() -> nn.Module:
    return stack(torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)))


@pytest.mark.parametrize(
    "build",
    [TwoReaders, SharedConv, SharedNorm, Branch, Reassigned, batch_statistics, parametrized],
)
def test_what_must_not_be_folded(build: Any) -> None:
    """Alone it is not folded; beside a pair that is, the whole stays right."""
    torch.manual_seed(0)
    assert speed_up(settled(build()), images()).folds == 0
    beside = settled(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), build()))
    folded = must_fold(beside)
    assert len(folded.pairs) == 1
    assert_same(beside, folded)


class ByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = stack(nn.Conv2d(3, 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) if x.mean() > 0.5 else self.body(1 - x)  # type: ignore[no-any-return]


class ByBatch(ByValue):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.body(x[k : k + 1])[0] for k in range(len(x))])


class Noisy(ByValue):
    """Noise that does not depend on x would become a constant in a trace."""

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x + 0.1 * torch.randn(3, 8, 8))  # type: ignore[no-any-return]


class Raises(ByValue):
    def forward(self, x: Tensor) -> Tensor:
        torch.rand(1)
        raise KeyError("never")


class PlainTensor(ByValue):
    """A tensor that is neither a parameter nor a buffer may be another one at the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.rand(3, 8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x + self.shift)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "build", [ByValue, ByBatch, Noisy, Raises, PlainTensor, old_weight_norm, lambda: nn.Sequential(*tail(3))]
)
def test_what_cannot_be_traced(build: Any) -> None:
    model = build().train()
    model.body = getattr(model, "body", nn.Identity()).eval()
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    assert folded_copy(model, images(), Features()) is None
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
