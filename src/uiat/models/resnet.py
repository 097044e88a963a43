"""Post-activation ResNets in the layout usual for CIFAR (He et al., 2016).

The names in the state dict are those of public checkpoints: `conv1`, `bn1`, `layer1.0.conv1`, …, `linear`.
"""

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from uiat.models.network import activation, conv1x1, conv3x3, pool, set_norm_momentum, subsampled
from uiat.models.stages import StagedNetwork, StageOptions
from uiat.types import DataSpec


@dataclass(frozen=True)
class ResNet(StageOptions):
    """ResNet for small images; ResNet-18 by default."""

    def build(self, data: DataSpec) -> nn.Module:
        """Make the network for data of this shape and number of classes."""
        return set_norm_momentum(ResNetModule(self, data), self.norm_momentum)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions, each followed by BatchNorm, and a shortcut."""

    def __init__(self, fan_in: int, fan_out: int, stride: int, act: str) -> None:
        super().__init__()
        self.conv1 = conv3x3(fan_in, fan_out, stride)
        self.bn1 = nn.BatchNorm2d(fan_out)
        self.conv2 = conv3x3(fan_out, fan_out)
        self.bn2 = nn.BatchNorm2d(fan_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or fan_in != fan_out:
            self.shortcut = nn.Sequential(conv1x1(fan_in, fan_out), nn.BatchNorm2d(fan_out))
        self.act = activation(act)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Return act(residual + shortcut)."""
        out: Tensor = self.act(self.bn1(self.conv1(x)))
        out = self.act(self.bn2(self.conv2(out)) + self.shortcut(subsampled(x, self.stride)))
        return out


class ResNetModule(StagedNetwork):
    """The network that `ResNet` describes."""

    def __init__(self, config: ResNet, data: DataSpec) -> None:
        super().__init__(config, data)
        self.conv1 = conv3x3(data.shape[0], config.width)
        self.bn1 = nn.BatchNorm2d(config.width)
        self.act = activation(config.activation)
        self.add_stages(partial(BasicBlock, act=config.activation), config)
        self.linear = nn.Linear(config.widths[-1], data.num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the features (N, D) that the last layer sees."""
        out: Tensor = self.act(self.bn1(self.conv1(self.normalize(x))))
        return pool(self.run_stages(out))

    def head(self, f: Tensor) -> Tensor:
        """Turn features into logits."""
        logits: Tensor = self.linear(f)
        return logits
