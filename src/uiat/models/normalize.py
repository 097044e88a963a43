"""Normalisation as a part of the model, so that everything outside of it lives in [0, 1]."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from uiat.errors import UserError

STATISTICS: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {
    1: ((0.5,), (0.5,)),
    3: ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
}
"""Mean and standard deviation by number of channels: CIFAR-10's own for coloured images."""


class Normalize(nn.Module):
    """(x − mean) / std, channel by channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        # Not persistent: state dicts keep the names of the public ones.
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise images in [0, 1]."""
        return (x - self.mean) / self.std


def normalization(channels: int) -> Normalize:
    """Return the usual normalisation of images with this many channels."""
    if channels not in STATISTICS:
        raise UserError(
            f"normalisation is known for images with 1 or 3 channels, not {channels}: leave `normalize` off."
        )
    return Normalize(*STATISTICS[channels])
