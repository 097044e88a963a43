"""Classifiers by name. Any other `nn.Module` from [0, 1] to logits does as well.

A new network: a frozen dataclass with `build(data)` in a file of its own, and a line in `MODELS` and one in
`DESCRIPTIONS`.
"""

from typing import Protocol

from torch import nn

from uiat.errors import unknown
from uiat.models.features import penultimate
from uiat.models.imported import Imported
from uiat.models.normalize import Normalize
from uiat.models.preact import PreActResNet
from uiat.models.resnet import ResNet
from uiat.models.wide_resnet import WideResNet
from uiat.types import DataSpec

__all__ = [
    "DESCRIPTIONS",
    "MODELS",
    "Imported",
    "ModelConfig",
    "Normalize",
    "PreActResNet",
    "ResNet",
    "WideResNet",
    "get",
    "penultimate",
]


class ModelConfig(Protocol):
    """What describes a model: hyper-parameters that build it once the data is known."""

    def build(self, data: DataSpec) -> nn.Module:
        """Make the model for data of this shape and number of classes."""
        ...


MODELS: dict[str, ModelConfig] = {
    "resnet18": ResNet(),
    "preactresnet18": PreActResNet(),
    "wrn-28-10": WideResNet(depth=28, widen=10),
    "wrn-34-10": WideResNet(depth=34, widen=10),
    "resnet8": ResNet(blocks=(1, 1, 1), width=16),
    "wrn-10-1": WideResNet(depth=10, widen=1),
}
"""Every bundled model by its name."""

DESCRIPTIONS: dict[str, str] = {
    "resnet18": "ResNet-18 for CIFAR, 11.2M parameters",
    "preactresnet18": "pre-activation ResNet-18, 11.2M parameters",
    "wrn-28-10": "wide ResNet-28-10, 36.5M parameters",
    "wrn-34-10": "wide ResNet-34-10, 46.2M parameters",
    "resnet8": "three stages of one block: ResNet-18's relative for a CPU, 78k parameters",
    "wrn-10-1": "wide ResNet-10-1: the pre-activation relative for a CPU, 78k parameters",
}
"""One line for each model."""


def get(name: str) -> ModelConfig:
    """Return the model of this name, or one's own for `module:callable`."""
    if ":" in name:
        return Imported(name)
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]
