"""Random crop with zero padding and random mirroring, for a whole batch at once."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, eq=False)
class Augmentation:
    """Where each image's crop starts in the padded image, and whether the image is mirrored."""

    top: Tensor
    left: Tensor
    flip: Tensor

    def rows(self, which: Tensor) -> "Augmentation":
        """Return the augmentation of some of the images."""
        return Augmentation(self.top[which], self.left[which], self.flip[which])

    def __call__(self, x: Tensor, padding: int) -> Tensor:
        """Apply to images (B, C, H, W): one gather from the padded batch does crop and mirror together."""
        count, channels, height, width = x.shape
        across = torch.arange(width, device=x.device)
        columns = torch.where(self.flip[:, None], across.flip(0), across) + self.left[:, None]
        rows = torch.arange(height, device=x.device) + self.top[:, None]
        place = (rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]).flatten(1)
        padded = pad(x, (padding,) * 4).flatten(2)
        return padded.gather(2, place[:, None].expand(-1, channels, -1)).view(count, channels, height, width)


def draw(
    count: int, padding: int, flip: bool, generator: torch.Generator, device: torch.device | str = "cpu"
) -> Augmentation:
    """Draw on the CPU, so that every device gets the same; switching `flip` off does not move the crops."""
    offsets = torch.randint(0, 2 * padding + 1, (2, count), generator=generator)
    mirrored = torch.randint(0, 2, (1, count), generator=generator) * flip
    top, left, coin = torch.cat([offsets, mirrored]).to(device)  # one transfer
    return Augmentation(top, left, coin.bool())
