"""Networks: helpers to compare them, and custom classifiers, each with a feature that is hard to support."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.types import DataSpec

CIFAR = DataSpec(num_classes=10, num_samples=100, shape=(3, 32, 32))


def data(classes: int = 10, shape: tuple[int, ...] = (3, 16, 16)) -> DataSpec:
    return DataSpec(num_classes=classes, num_samples=100, shape=shape)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def names(model: nn.Module) -> set[str]:
    """Names of parameters and BatchNorm statistics; BatchNorm's counters are implied."""
    return {name for name in model.state_dict() if not name.endswith("num_batches_tracked")}


def batch_norm(name: str) -> set[str]:
    return {f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var")}


def settle(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """Give BatchNorm statistics and weights that are not those of a fresh network, then evaluate."""
    with torch.no_grad():
        model.train()(x)
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


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
    """A convolution with standardised weights, as usually written."""

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
    """Adds sizes, which are not tensors, and shapes, whose order matters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        more = x.shape[2] + x.shape[3] + x.size(1)
        shape = x.shape[:2] + x.shape[2:]
        return self.linear(x.reshape(shape).sum((2, 3)) / more)  # type: ignore[no-any-return]


class Rolls(nn.Module):
    """Is random through Python's generator, not torch's."""

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
    """Has a private random stream: only its outputs show that it is random."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = random.Random(1)

    def shift(self) -> int:
        return self.chance.randint(-2, 2)


class Ramps(NormedLeNet):
    """Follows a schedule in a Python number, which a trace records as a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.heat = 1.0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.heat *= 1.05
        return self.heat * super().forward(x)


def cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )


def mlp(inputs: int = 5) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 7), nn.Tanh(), nn.Linear(7, 3))


class AlexLike(nn.Module):
    """`features` without `head`, and a classifier of several linear layers, two of them of one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 6))
        self.unused = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(x).flatten(1))
        return out


class SwinLike(nn.Module):
    """`features` and `head` with a norm and pooling between them, so that head(features(x)) is not the network."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 8, 2, 2)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.features(x).permute(0, 2, 3, 1)).mean((1, 2)))
        return out


class Halves(nn.Module):
    """`features` and a `head` without a linear layer, and possibly something between them."""

    def __init__(self, head: nn.Module | None = None, between: nn.Module | None = None) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3, padding=1)
        self.between = between
        self.last = nn.Sequential(nn.Flatten(), nn.Linear(256, 5)) if head is None else head

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x).relu()
        return out

    def head(self, f: Tensor) -> Tensor:
        out: Tensor = self.last(f)
        return out

    def forward(self, x: Tensor) -> Tensor:
        f = self.features(x)
        return self.head(f if self.between is None else self.between(f))


class ConvHead(nn.Module):
    """Ends in a 1×1 convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.last = nn.Conv2d(6, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.body(x)).flatten(1)
        return out


class Mean(nn.Module):
    """No layer at all."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class Reused(nn.Module):
    """One linear layer, called twice, and layers that see no batch."""

    def __init__(self) -> None:
        super().__init__()
        self.same = nn.Linear(6, 6)
        self.vector = nn.Linear(6, 6)
        self.scalar = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        self.vector(self.scalar(torch.zeros(())) + torch.zeros(6))
        out: Tensor = self.same(self.same(x))
        return out


def hooks(model: nn.Module) -> int:
    """Count the hooks left on a model."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
