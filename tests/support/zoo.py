"""Other people's classifiers: shapes of model that the search for features must get right."""

import torch
from torch import Tensor, nn


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
    """`features` and `head` with a norm and pooling between them, which the two alone leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 8, 2, 2)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.features(x).permute(0, 2, 3, 1)).mean((1, 2)))
        return out


class Halves(nn.Module):
    """`features` and a `head` without a linear layer of its own, and possibly something between them."""

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
