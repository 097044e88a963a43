"""Residual networks for small images: ResNet, pre-activation ResNet and wide ResNet.

The names in the state dicts are those of public checkpoints. This file imports torch and the standard library only:
`uiat export` copies it, so that a trained network can be loaded without the package uiat.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

NormLayer = Callable[[int], nn.Module]
"""Returns a normalisation layer for this many channels."""
Activation = Callable[[], nn.Module]
"""Returns an activation layer."""
Block = Callable[[int, int, int], nn.Module]
"""Returns a residual block for (channels in, channels out, stride)."""

ACTIVATIONS: dict[str, Activation] = {"relu": nn.ReLU, "silu": nn.SiLU}
"""Activations by name."""

STATISTICS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "grey": ((0.5,), (0.5,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Mean and standard deviation of the channels, by name; images with one channel use `grey`."""

STEM = 16
"""Channels of a wide ResNet's first convolution, whatever the width of the rest."""


class Normalize(nn.Module):
    """(x − mean) / std, channel by channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], *, persistent: bool = False) -> None:
        super().__init__()
        # Not persistent in the bundled networks, so that state dicts have the names of public checkpoints.
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=persistent)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise images in [0, 1]."""
        return (x - self.mean) / self.std


class Network(nn.Module):
    """An image classifier from [0, 1] to logits: `forward(x)` is `head(features(x))`."""

    last_layer = "linear"

    def __init__(
        self,
        in_channels: int,
        *,
        activation: str,
        normalize: bool,
        features: str,
        norm_momentum: float,
        statistics: str,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
    ) -> None:
        super().__init__()
        self.penultimate_layer = features
        self.make_norm = partial(nn.BatchNorm2d, momentum=norm_momentum)
        self.make_activation = ACTIVATIONS[activation]
        known = (mean, std) if mean else STATISTICS["grey" if in_channels == 1 else statistics]
        self.normalize = Normalize(*known) if normalize or mean else nn.Identity()

    def features(self, x: Tensor) -> Tensor:
        """Return the features (N, D): the input of the last layer."""
        raise NotImplementedError

    def head(self, f: Tensor) -> Tensor:
        """Turn features into logits."""
        logits: Tensor = self.get_submodule(self.last_layer)(f)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images in [0, 1]."""
        return self.head(self.features(x))


class StagedNetwork(Network):
    """A network with the stages `layer1`, `layer2`, …: each has twice the channels of the one before it."""

    layers: tuple[str, ...]

    def add_stages(self, block: Block, blocks: Sequence[int], width: int) -> int:
        """Add the stages and return the channels of the last one; all but the first halve the resolution."""
        self.layers = tuple(f"layer{k + 1}" for k in range(len(blocks)))
        fan_in = fan_out = width
        for k, count in enumerate(blocks):
            fan_out = width * 2**k
            self.add_module(self.layers[k], stage(block, count, fan_in, fan_out, stride=1 if k == 0 else 2))
            fan_in = fan_out
        return fan_out

    def run_stages(self, x: Tensor) -> Tensor:
        """Pass x through all stages."""
        for name in self.layers:
            x = getattr(self, name)(x)
        return x


def stage(block: Block, count: int, fan_in: int, fan_out: int, stride: int) -> nn.Sequential:
    """Stack `count` blocks, the first of which changes the width and the resolution."""
    first = block(fan_in, fan_out, stride)
    return nn.Sequential(first, *(block(fan_out, fan_out, 1) for _ in range(count - 1)))


def conv3x3(fan_in: int, fan_out: int, stride: int = 1) -> nn.Conv2d:
    """Return a 3×3 convolution without bias, which keeps the size at stride 1."""
    return nn.Conv2d(fan_in, fan_out, 3, stride, padding=1, bias=False)


def conv1x1(fan_in: int, fan_out: int) -> nn.Conv2d:
    """Return the 1×1 convolution of a shortcut, whose input is `subsampled` if the shortcut has a stride."""
    return nn.Conv2d(fan_in, fan_out, 1, bias=False)


def subsampled(maps: Tensor, stride: int) -> Tensor:
    """Return every stride-th position, the only ones that a 1×1 convolution with that stride reads.

    The convolution itself has no stride: oneDNN's gradient for the weights of a strided 1×1 convolution with few
    channels is wrong in channels_last memory, or written out of bounds (oneDNN's issue 6035).
    """
    return maps if stride == 1 else maps[:, :, ::stride, ::stride]


def pool(maps: Tensor) -> Tensor:
    """Average over all positions: (N, D, height, width) -> (N, D)."""
    # A mean and not adaptive pooling, whose gradient is not deterministic on GPUs.
    return maps.mean((2, 3))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions, each followed by BatchNorm, and a shortcut."""

    def __init__(self, fan_in: int, fan_out: int, stride: int, norm: NormLayer, act: Activation) -> None:
        super().__init__()
        self.conv1 = conv3x3(fan_in, fan_out, stride)
        self.bn1 = norm(fan_out)
        self.conv2 = conv3x3(fan_out, fan_out)
        self.bn2 = norm(fan_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or fan_in != fan_out:
            self.shortcut = nn.Sequential(conv1x1(fan_in, fan_out), norm(fan_out))
        self.act = act()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Return act(residual + shortcut)."""
        out: Tensor = self.act(self.bn1(self.conv1(x)))
        out = self.act(self.bn2(self.conv2(out)) + self.shortcut(subsampled(x, self.stride)))
        return out


class ResNetModule(StagedNetwork):
    """A post-activation ResNet in the layout usual for CIFAR (He et al., 2016)."""

    def __init__(
        self, num_classes: int, in_channels: int, *, blocks: Sequence[int], width: int, **options: Any
    ) -> None:
        super().__init__(in_channels, **options)
        self.conv1 = conv3x3(in_channels, width)
        self.bn1 = self.make_norm(width)
        self.act = self.make_activation()
        last = self.add_stages(partial(BasicBlock, norm=self.make_norm, act=self.make_activation), blocks, width)
        self.linear = nn.Linear(last, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the features (N, D): the input of the last layer."""
        out: Tensor = self.act(self.bn1(self.conv1(self.normalize(x))))
        return pool(self.run_stages(out))


class PreActBlock(nn.Module):
    """Two 3×3 convolutions, each preceded by BatchNorm and activation, and a shortcut."""

    def __init__(self, fan_in: int, fan_out: int, stride: int, norm: NormLayer, act: Activation, shortcut: str) -> None:
        super().__init__()
        self.bn1 = norm(fan_in)
        self.conv1 = conv3x3(fan_in, fan_out, stride)
        self.bn2 = norm(fan_out)
        self.conv2 = conv3x3(fan_out, fan_out)
        self.shortcut: nn.Module | None = None
        if stride != 1 or fan_in != fan_out:
            wide = shortcut == "raw-3x3"
            self.shortcut = nn.Sequential(conv3x3(fan_in, fan_out, stride) if wide else conv1x1(fan_in, fan_out))
        self.act = act()
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
    """A pre-activation ResNet (He et al., 2016b) as in the code of Wong et al. (2020) and Rice et al. (2020)."""

    def __init__(
        self, num_classes: int, in_channels: int, *, blocks: Sequence[int], width: int, shortcut: str, **options: Any
    ) -> None:
        super().__init__(in_channels, **options)
        self.conv1 = conv3x3(in_channels, width)
        last = self.add_stages(
            partial(PreActBlock, norm=self.make_norm, act=self.make_activation, shortcut=shortcut), blocks, width
        )
        self.bn = self.make_norm(last)
        self.act = self.make_activation()
        self.linear = nn.Linear(last, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the features (N, D): the input of the last layer."""
        out = self.run_stages(self.conv1(self.normalize(x)))
        return pool(self.act(self.bn(out)))


class WideBlock(nn.Module):
    """Two 3×3 convolutions, each preceded by BatchNorm and activation, and a shortcut."""

    def __init__(self, fan_in: int, fan_out: int, stride: int, norm: NormLayer, act: Activation) -> None:
        super().__init__()
        self.bn1 = norm(fan_in)
        self.conv1 = conv3x3(fan_in, fan_out, stride)
        self.bn2 = norm(fan_out)
        self.conv2 = conv3x3(fan_out, fan_out)
        self.convShortcut = conv1x1(fan_in, fan_out) if fan_in != fan_out else None
        self.act = act()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Return residual + shortcut; only a shortcut that changes the width uses the activated input."""
        active: Tensor = self.act(self.bn1(x))
        short: Tensor = x if self.convShortcut is None else self.convShortcut(subsampled(active, self.stride))
        out: Tensor = self.conv2(self.act(self.bn2(self.conv1(active))))
        return short + out


class WideResNetModule(Network):
    """A wide ResNet (Zagoruyko & Komodakis, 2016) as in the code of TRADES (Zhang et al., 2019)."""

    last_layer = "fc"

    def __init__(self, num_classes: int, in_channels: int, *, depth: int, widen: int, **options: Any) -> None:
        super().__init__(in_channels, **options)
        block = partial(WideBlock, norm=self.make_norm, act=self.make_activation)
        count, width = (depth - 4) // 6, STEM * widen
        self.conv1 = conv3x3(in_channels, STEM)
        self.block1 = _named(stage(block, count, STEM, width, stride=1))
        self.block2 = _named(stage(block, count, width, 2 * width, stride=2))
        self.block3 = _named(stage(block, count, 2 * width, 4 * width, stride=2))
        self.bn1 = self.make_norm(4 * width)
        self.act = self.make_activation()
        self.fc = nn.Linear(4 * width, num_classes)
        self.apply(_initialise)

    def features(self, x: Tensor) -> Tensor:
        """Return the features (N, D): the input of the last layer."""
        out = self.block3(self.block2(self.block1(self.conv1(self.normalize(x)))))
        return pool(self.act(self.bn1(out)))


def _named(blocks: nn.Sequential) -> nn.Sequential:
    """Name the blocks `layer`, as in public checkpoints."""
    return nn.Sequential(OrderedDict(layer=blocks))


def _initialise(module: nn.Module) -> None:
    """Initialise a layer as the TRADES code does; BatchNorm starts at 1 and 0 by default."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
