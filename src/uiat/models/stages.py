"""Stages of residual blocks: what ResNets share, before and after activation."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from uiat.errors import UserError
from uiat.models.network import Network, NetworkOptions
from uiat.types import DataSpec

Block = Callable[[int, int, int], nn.Module]
"""Makes a residual block from (channels in, channels out, stride)."""


@dataclass(frozen=True)
class StageOptions(NetworkOptions):
    """The options of a network whose stages double the channels and halve the resolution."""

    blocks: tuple[int, ...] = (2, 2, 2, 2)
    """Residual blocks in each stage; every stage after the first halves the resolution."""
    width: int = 64
    """Channels of the first stage; each further stage has twice as many."""

    @property
    def widths(self) -> list[int]:
        """Channels of each stage."""
        return [self.width * 2**k for k in range(len(self.blocks))]


class StagedNetwork(Network):
    """A network with the stages `layer1`, `layer2`, …"""

    def __init__(self, options: StageOptions, data: DataSpec) -> None:
        if not options.blocks or min(options.blocks) < 1 or options.width < 1:
            raise UserError(f"`blocks` and `width` must be positive, not {options.blocks} and {options.width}.")
        super().__init__(options, data)
        self.layers = tuple(f"layer{k + 1}" for k in range(len(options.blocks)))

    def add_stages(self, block: Block, options: StageOptions) -> None:
        """Make the stages; a step of its own, so that weights are drawn in the order of public code."""
        fan_in = options.width
        for k, (count, width) in enumerate(zip(options.blocks, options.widths, strict=True)):
            self.add_module(self.layers[k], stage(block, count, fan_in, width, stride=1 if k == 0 else 2))
            fan_in = width

    def run_stages(self, x: Tensor) -> Tensor:
        """Pass x through all stages."""
        for name in self.layers:
            x = getattr(self, name)(x)
        return x


def stage(block: Block, count: int, fan_in: int, fan_out: int, stride: int) -> nn.Sequential:
    """Stack `count` blocks, the first of which changes the width and the resolution."""
    first = block(fan_in, fan_out, stride)
    return nn.Sequential(first, *(block(fan_out, fan_out, 1) for _ in range(count - 1)))
