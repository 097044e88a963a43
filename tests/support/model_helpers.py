"""What the tests of the models share."""

import torch
from torch import nn

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
