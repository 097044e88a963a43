"""Small networks, batches and draws for the tests of the twins."""

import torch
from torch import Tensor, nn

from examples.uiat_in_one_file import Net
from tests.twins.hyper import hp_for

C, SHAPE, N = 3, (1, 3, 4), 6


class SeededDraws:
    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _key(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed + sum(purpose.encode()))

    def uniform(self, purpose: str, like: Tensor) -> Tensor:
        return torch.rand(like.shape, generator=self._key(purpose), dtype=like.dtype) * 2 - 1

    def normal(self, purpose: str, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self._key(purpose), dtype=like.dtype)


class Counting(Net):
    """Counts forward passes in train mode, and records their inputs."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen.append(x.detach().clone())
        return super().forward(x)

    seen: list[Tensor]


class Identity(nn.Module):
    """F(x) = x, f(x) = x: everything can be computed by hand."""

    def features(self, x: Tensor) -> Tensor:
        return x

    def head(self, f: Tensor) -> Tensor:
        return f

    def forward(self, x: Tensor) -> Tensor:
        return x


def make_net(seed: int = 0) -> Counting:
    torch.manual_seed(seed)
    net = Counting(pixels=12, classes=C, n=8).double()
    net.seen = []
    net.train()
    return net


def make_batch() -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(5)
    x = torch.rand(N, *SHAPE, generator=g, dtype=torch.float64)
    x[0, 0, 0] = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    return x, torch.tensor([0, 1, 0, 1, 1, 0]), torch.arange(10, 10 + N)


def make_z() -> Tensor:
    g = torch.Generator().manual_seed(9)
    return 0.001 * torch.randn(C, *SHAPE, generator=g, dtype=torch.float64)


def settings(name: str, **changes: object) -> dict[str, object]:
    return hp_for(name, helper=make_net(3), **changes) if name == "hat" else hp_for(name, **changes)
