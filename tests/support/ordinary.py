"""Networks as people write them, for digits of 1×8×8: each has something that a fast path must not stumble over."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LeNet(nn.Module):
    """Flattens its maps with `view`, which memory in channels_last order does not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3)
        self.linear = nn.Linear(6 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.second(F.relu(self.first(x))))
        return self.linear(x.view(x.size(0), -1))  # type: ignore[no-any-return]


class NormedLeNet(LeNet):
    """The same with BatchNorm that can be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.BatchNorm2d(4), nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.second_norm(self.second(F.relu(self.first_norm(self.first(x))))))
        return self.linear(x.view(x.size(0), -1))  # type: ignore[no-any-return]


class Standardised(nn.Conv2d):
    """A convolution with standardised weights, in its usual words."""

    def forward(self, x: Tensor) -> Tensor:
        flat = self.weight.view(self.weight.size(0), -1)
        weight = (flat - flat.mean(1, keepdim=True)) / (flat.std(1, keepdim=True) + 1e-5)
        return F.conv2d(x, weight.view_as(self.weight), self.bias, self.stride, self.padding)


class WeightStandardised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), Standardised(4, 4, 3)
        self.linear = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.second(F.relu(self.norm(self.first(x)))).mean((2, 3)))  # type: ignore[no-any-return]


class Volumes(nn.Module):
    """3-D convolutions have weights with five dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.norm, self.deep = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv3d(1, 2, 3)
        self.linear = nn.Linear(2, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.flat(x)))
        return self.linear(self.deep(x[:, None]).mean((2, 3, 4)))  # type: ignore[no-any-return]


class GlobalContext(nn.Module):
    """Adds maps of one position to maps of many."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.context = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)
        self.linear = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = x + self.context(F.adaptive_avg_pool2d(x, 1))
        x = self.context(F.adaptive_avg_pool2d(x, 1)) + x
        return self.linear(F.relu(x).mean((2, 3)))  # type: ignore[no-any-return]


class Sizes(nn.Module):
    """Adds sizes, which are no tensors, and shapes, whose order matters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        more = x.shape[2] + x.shape[3] + x.size(1)
        shape = x.shape[:2] + x.shape[2:]
        return self.linear(x.reshape(shape).sum((2, 3)) / more)  # type: ignore[no-any-return]


class Rolls(nn.Module):
    """Decides by chance, and not by torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 36, 10)

    def shift(self) -> int:
        return random.randint(-1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(F.relu(self.norm(self.conv(x))), self.shift(), 3)
        return self.linear(x.flatten(1))  # type: ignore[no-any-return]


class NumpyRolls(Rolls):
    def shift(self) -> int:
        return int(np.random.randint(-1, 2))


class OwnRolls(Rolls):
    """Its stream is nobody else's: only its answers tell."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = random.Random(1)

    def shift(self) -> int:
        return self.chance.randint(-2, 2)


class Ramps(NormedLeNet):
    """Follows a schedule of its own, in a number that no trace follows."""

    def __init__(self) -> None:
        super().__init__()
        self.heat = 1.0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.heat *= 1.05
        return self.heat * super().forward(x)
