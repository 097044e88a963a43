"""Pre-activation ResNets (He et al., 2016b) as in the code of Wong et al. (2020) and Rice et al. (2020).

The names in the state dict are those of their checkpoints: `conv1`, `layer1.0.bn1`, …, `bn`, `linear`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import Tensor, nn

from uiat.errors import unknown
from uiat.models.network import activation, conv1x1, conv3x3, pool, set_norm_momentum, subsampled
from uiat.models.stages import StagedNetwork, StageOptions
from uiat.types import DataSpec

SHORTCUTS = ("activated", "raw", "raw-3x3")


@dataclass(frozen=True)
class PreActResNet(StageOptions):
    """Pre-activation ResNet for small images; PreActResNet-18 by default."""

    shortcut: Literal["activated", "raw", "raw-3x3"] = "activated"
    """What a shortcut's convolution sees: the activated input (Rice et al.) or the raw one (Wong et al.). Names and
    shapes are the same in both, so a checkpoint does not tell which it needs. `raw-3x3`: a 3×3 convolution of the raw
    input (Rebuffi et al.)."""

    def build(self, data: DataSpec) -> nn.Module:
        """Make the network for data of this shape and number of classes."""
        if self.shortcut not in SHORTCUTS:
            raise unknown("shortcut", self.shortcut, SHORTCUTS)
        return set_norm_momentum(PreActResNetModule(self, data), self.norm_momentum)


class PreActBlock(nn.Module):
    """Two 3×3 convolutions, each preceded by BatchNorm and activation, and a shortcut."""

    def __init__(self, fan_in: int, fan_out: int, stride: int, act: str, shortcut: str) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(fan_in)
        self.conv1 = conv3x3(fan_in, fan_out, stride)
        self.bn2 = nn.BatchNorm2d(fan_out)
        self.conv2 = conv3x3(fan_out, fan_out)
        self.shortcut: nn.Module | None = None
        if stride != 1 or fan_in != fan_out:
            wide = shortcut == "raw-3x3"
            self.shortcut = nn.Sequential(conv3x3(fan_in, fan_out, stride) if wide else conv1x1(fan_in, fan_out))
        self.act = activation(act)
        self.kind = shortcut
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Return residual + shortcut; an identity shortcut always carries the raw input."""
        active: Tensor = self.act(self.bn1(x))
        short: Tensor = x
        if self.shortcut is not None:
            seen = active if self.kind == "activated" else x
            short = self.shortcut(seen if self.kind == "raw-3x3" else subsampled(seen, self.stride))
        out: Tensor = self.conv2(self.act(self.bn2(self.conv1(active))))
        return out + short


class PreActResNetModule(StagedNetwork):
    """The network that `PreActResNet` describes."""

    def __init__(self, config: PreActResNet, data: DataSpec) -> None:
        super().__init__(config, data)
        self.conv1 = conv3x3(data.shape[0], config.width)
        block = partial(PreActBlock, act=config.activation, shortcut=config.shortcut)
        self.add_stages(block, config)
        self.bn = nn.BatchNorm2d(config.widths[-1])
        self.act = activation(config.activation)
        self.linear = nn.Linear(config.widths[-1], data.num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the features (N, D) that the last layer sees."""
        out = self.run_stages(self.conv1(self.normalize(x)))
        return pool(self.act(self.bn(out)))

    def head(self, f: Tensor) -> Tensor:
        """Turn features into logits."""
        logits: Tensor = self.linear(f)
        return logits
