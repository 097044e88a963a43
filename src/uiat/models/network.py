"""What all bundled networks share: their options, features and head, and small parts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from uiat.errors import UserError, unknown
from uiat.fields import added
from uiat.models.normalize import normalization
from uiat.types import DataSpec

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU}


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """The options that every bundled network has."""

    activation: Literal["relu", "silu"] = "relu"
    """The non-linearity, everywhere in the network."""
    normalize: bool = False
    """Whether inputs in [0, 1] are normalised inside the model (CIFAR-10's statistics for 3 channels)."""
    features: str = ""
    """The layer whose input is taken as the features; empty for what the last layer sees."""
    norm_momentum: float = added(0.1)
    """How much of a batch's statistics BatchNorm's running ones take in at each forward."""


class Network(nn.Module):
    """An image classifier from [0, 1] to logits: `forward(x)` is `head(features(x))`."""

    def __init__(self, options: NetworkOptions, data: DataSpec) -> None:
        super().__init__()
        if len(data.shape) != 3:
            raise UserError(
                f"this model needs images of shape (channels, height, width), but a sample has {data.shape}."
            )
        self.penultimate_layer = options.features
        self.normalize = normalization(data.shape[0]) if options.normalize else nn.Identity()

    def features(self, x: Tensor) -> Tensor:
        """Return the features (N, D) that the last layer sees."""
        raise NotImplementedError

    def head(self, f: Tensor) -> Tensor:
        """Turn features into logits."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images in [0, 1]."""
        return self.head(self.features(x))


def set_norm_momentum(network: nn.Module, momentum: float) -> nn.Module:
    """Give every BatchNorm of a network this momentum; return the network."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = momentum
    return network


def activation(name: str) -> nn.Module:
    """Make the non-linearity of this name."""
    if name not in ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]()


def conv3x3(fan_in: int, fan_out: int, stride: int = 1) -> nn.Conv2d:
    """Make a 3×3 convolution without bias, which keeps the size at stride 1."""
    return nn.Conv2d(fan_in, fan_out, 3, stride, padding=1, bias=False)


def conv1x1(fan_in: int, fan_out: int) -> nn.Conv2d:
    """Make the 1×1 convolution of a shortcut, whose input is `subsampled` where the shortcut has a stride."""
    return nn.Conv2d(fan_in, fan_out, 1, bias=False)


def subsampled(maps: Tensor, stride: int) -> Tensor:
    """Return every stride-th position: a 1×1 convolution with that stride sees no other.

    The stride is not left to the convolution: oneDNN's gradient for the weights of a strided 1×1 convolution with few
    channels is wrong in channels_last memory, or writes where it must not (its issue 6035).
    """
    return maps if stride == 1 else maps[:, :, ::stride, ::stride]


def pool(maps: Tensor) -> Tensor:
    """Average over all positions: (N, D, height, width) -> (N, D)."""
    # A mean and not adaptive pooling, whose gradient is not deterministic on GPUs.
    return maps.mean((2, 3))
