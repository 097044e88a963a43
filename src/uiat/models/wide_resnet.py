"""Wide ResNets (Zagoruyko & Komodakis, 2016) as in the code of TRADES (Zhang et al., 2019).

The names in the state dict are those of public checkpoints: `conv1`, `block1.layer.0.bn1`, …, `bn1`, `fc`.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from uiat.errors import UserError
from uiat.models.network import (
    Network,
    NetworkOptions,
    activation,
    conv1x1,
    conv3x3,
    pool,
    set_norm_momentum,
    subsampled,
)
from uiat.models.stages import stage
from uiat.types import DataSpec

STEM = 16
"""Channels of the first convolution, whatever the width of the rest."""


@dataclass(frozen=True)
class WideResNet(NetworkOptions):
    """Wide ResNet for small images; WRN-28-10 by default."""

    depth: int = 28
    """Convolutional layers: 6n + 4 for n blocks in each of the three stages."""
    widen: int = 10
    """Width, as a multiple of the 16, 32 and 64 channels of the plain network's stages."""

    def build(self, data: DataSpec) -> nn.Module:
        """Make the network for data of this shape and number of classes."""
        if self.depth < 10 or (self.depth - 4) % 6:
            raise UserError(f"the depth of a wide ResNet must be 6n + 4 (16, 22, 28, …), not {self.depth}.")
        if self.widen < 1:
            raise UserError(f"the widening factor of a wide ResNet must be at least 1, not {self.widen}.")
        return set_norm_momentum(WideResNetModule(self, data), self.norm_momentum)


class WideBlock(nn.Module):
    """Two 3×3 convolutions, each preceded by BatchNorm and activation, and a shortcut."""

    def __init__(self, fan_in: int, fan_out: int, stride: int, act: str) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(fan_in)
        self.conv1 = conv3x3(fan_in, fan_out, stride)
        self.bn2 = nn.BatchNorm2d(fan_out)
        self.conv2 = conv3x3(fan_out, fan_out)
        self.convShortcut = conv1x1(fan_in, fan_out) if fan_in != fan_out else None
        self.act = activation(act)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Return residual + shortcut; only a shortcut that changes the width sees the activated input."""
        active: Tensor = self.act(self.bn1(x))
        short: Tensor = x if self.convShortcut is None else self.convShortcut(subsampled(active, self.stride))
        out: Tensor = self.conv2(self.act(self.bn2(self.conv1(active))))
        return short + out


class WideResNetModule(Network):
    """The network that `WideResNet` describes."""

    def __init__(self, config: WideResNet, data: DataSpec) -> None:
        super().__init__(config, data)
        block = partial(WideBlock, act=config.activation)
        count, width = (config.depth - 4) // 6, STEM * config.widen
        self.conv1 = conv3x3(data.shape[0], STEM)
        self.block1 = _named(stage(block, count, STEM, width, stride=1))
        self.block2 = _named(stage(block, count, width, 2 * width, stride=2))
        self.block3 = _named(stage(block, count, 2 * width, 4 * width, stride=2))
        self.bn1 = nn.BatchNorm2d(4 * width)
        self.act = activation(config.activation)
        self.fc = nn.Linear(4 * width, data.num_classes)
        self.apply(_initialise)

    def features(self, x: Tensor) -> Tensor:
        """Return the features (N, D) that the last layer sees."""
        out = self.block3(self.block2(self.block1(self.conv1(self.normalize(x)))))
        return pool(self.act(self.bn1(out)))

    def head(self, f: Tensor) -> Tensor:
        """Turn features into logits."""
        logits: Tensor = self.fc(f)
        return logits


def _named(blocks: nn.Sequential) -> nn.Sequential:
    """Put the blocks under `layer`, where public checkpoints have them."""
    return nn.Sequential(OrderedDict(layer=blocks))


def _initialise(module: nn.Module) -> None:
    """Initialise a layer as the TRADES code does; BatchNorm starts at 1 and 0 by itself."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
