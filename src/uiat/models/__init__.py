"""Bundled classifiers and their options. Any other `nn.Module` from [0, 1] to logits can be used as well.

To add a network, write its `nn.Module` in `networks.py`, a frozen dataclass of its options here, and a line in `MODELS`
and in `DESCRIPTIONS`.
"""

from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal, Protocol

from torch import nn

from uiat.errors import UserError, unknown
from uiat.fields import SHARE, Range, optional_in_key, require, require_that
from uiat.models import networks
from uiat.models.features import penultimate
from uiat.models.imported import Imported, InMemory
from uiat.models.libraries import input_format
from uiat.models.networks import Normalize
from uiat.models.wrappers import InputStatistics
from uiat.types import DataSpec

__all__ = [
    "DESCRIPTIONS",
    "LARGEST",
    "MODELS",
    "Imported",
    "InMemory",
    "ModelConfig",
    "NetworkOptions",
    "Normalize",
    "PreActResNet",
    "ResNet",
    "WideResNet",
    "get_model",
    "penultimate",
]


LARGEST = 10_000
"""Upper limit of the sizes of a bundled network, so that a file cannot describe one that exhausts the memory."""
SIZE = Range(1, LARGEST, whole=True)


class ModelConfig(Hashable, Protocol):
    """Protocol of model configurations: hyper-parameters that build a model for given data."""

    def build(self, data: DataSpec) -> nn.Module:
        """Return the model for data of this shape and number of classes."""
        ...


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(InputStatistics):
    """Options of all bundled networks."""

    module: ClassVar[Callable[..., nn.Module]]
    """The class of the network; its arguments are the numbers of classes and channels, and the options by name."""

    activation: Literal["relu", "silu"] = "relu"
    """The activation function."""
    normalize: bool = False
    """Whether inputs in [0, 1] are normalised inside the model, with `statistics`; they also are if `mean` is given."""
    features: str = ""
    """The layer whose input is the feature vector; empty: the last layer."""
    norm_momentum: float = optional_in_key(0.1)
    """Momentum of BatchNorm's running statistics."""
    statistics: Literal["cifar10", "cifar100"] = optional_in_key("cifar10")
    """The data set whose mean and standard deviation normalise images with 3 channels, if `normalize` is on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, norm_momentum=SHARE)

    def build(self, data: DataSpec) -> nn.Module:
        """Return the network for data of this shape and number of classes."""
        self.check(data)
        return self.module(data.num_classes, data.shape[0], **asdict(self))

    def check(self, data: DataSpec) -> None:
        """Raise a `UserError` if the network cannot be built for this data."""
        if len(data.shape) != 3:
            raise UserError(
                f"this model needs images of shape (channels, height, width), but a sample has {data.shape}."
            )
        self.check_statistics(data.shape[0])
        if self.normalize and not self.mean and data.shape[0] not in (1, 3):
            raise UserError(
                f"normalisation is known for images with 1 or 3 channels, not {data.shape[0]}: "
                "give `mean` and `std`, or turn `normalize` off."
            )


@dataclass(frozen=True)
class StageOptions(NetworkOptions):
    """Options of networks whose stages double the channels and halve the resolution."""

    blocks: tuple[int, ...] = (2, 2, 2, 2)
    """Residual blocks in each stage; every stage after the first halves the resolution."""
    width: int = 64
    """Channels of the first stage; each further stage has twice as many."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, blocks=SIZE, width=SIZE)
        blocks = sum(self.blocks)
        require_that(self, blocks in SIZE, "blocks", f"has {blocks} in all: give {SIZE.advice(blocks)}.")


@dataclass(frozen=True)
class ResNet(StageOptions):
    """ResNet for small images; ResNet-18 by default."""

    module = networks.ResNetModule


@dataclass(frozen=True)
class PreActResNet(StageOptions):
    """Pre-activation ResNet for small images; PreActResNet-18 by default."""

    module = networks.PreActResNetModule

    shortcut: Literal["activated", "raw", "raw-3x3"] = "activated"
    """Input of a shortcut's convolution: the activated input (Rice et al.) or the raw one (Wong et al.). Names and
    shapes are the same in both, so a checkpoint does not show which one it needs. `raw-3x3`: a 3×3 convolution of the
    raw input (Rebuffi et al.)."""


@dataclass(frozen=True)
class WideResNet(NetworkOptions):
    """Wide ResNet for small images; WRN-28-10 by default."""

    module = networks.WideResNetModule

    depth: int = 28
    """Convolutional layers: 6n + 4 for n blocks in each of the three stages."""
    widen: int = 10
    """Width, as a multiple of the 16, 32 and 64 channels of the plain network's stages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, depth=SIZE, widen=SIZE)

    def check(self, data: DataSpec) -> None:
        """Raise a `UserError` if the network cannot be built for this data."""
        if self.depth < 10 or self.depth % 6 != 4:
            raise UserError(f"the depth of a wide ResNet is {self.depth}: give 6n + 4, such as 16, 22 or 28.")
        super().check(data)


MODELS: dict[str, ModelConfig] = {
    "resnet18": ResNet(),
    "preactresnet18": PreActResNet(),
    "wrn-28-10": WideResNet(depth=28, widen=10),
    "wrn-34-10": WideResNet(depth=34, widen=10),
    "resnet8": ResNet(blocks=(1, 1, 1), width=16),
    "wrn-10-1": WideResNet(depth=10, widen=1),
}
"""Registered models by name."""

DESCRIPTIONS: dict[str, str] = {
    "resnet18": "ResNet-18 for CIFAR, 11.2M parameters",
    "preactresnet18": "pre-activation ResNet-18, 11.2M parameters",
    "wrn-28-10": "wide ResNet-28-10, 36.5M parameters",
    "wrn-34-10": "wide ResNet-34-10, 46.2M parameters",
    "resnet8": "small ResNet for a CPU, three stages of one block, 78k parameters",
    "wrn-10-1": "small wide ResNet-10-1 for a CPU, 78k parameters",
}
"""A line about each model."""


def get_model(name: str) -> ModelConfig:
    """Return the registered model of this name, or a custom one for `module:callable`, `timm:…` or `transformers:…`."""
    if ":" in name:  # a network of a library normalises as its own configuration says
        known = input_format(name)
        return Imported(name, mean=known.mean, std=known.std)
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]
