"""Frames of an example: one image for each ε, from −ε (inverse adversarial) over the natural image to 2ε (adversarial).

The radius grows in small steps, and each frame starts from the one before it. A frame changes only if that lowers the
loss of an inverse adversarial example, or raises that of an adversarial one. So with cross-entropy alone, the
probability of the true class is monotonic in ε. Frames are rounded to pixel levels: the image that a reader sees is the
image that was classified.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.attacks import PGD
from uiat.attacks.ascent import ascend, gradient_of
from uiat.balls import BALLS
from uiat.crafting import crafting
from uiat.data.images import Images, to_unit
from uiat.evaluation.cascade import predictions
from uiat.objectives.inverse_loss import inverse_loss
from uiat.rng import SampleDraws

STEPS_PER_RADIUS = 4
"""Gradient steps at each radius."""
INVERSE_FRAMES, ADVERSARIAL_FRAMES = 8, 16
"""Number of inverse adversarial frames (to −ε) and of adversarial ones (to 2ε), besides the natural image."""


@dataclass(frozen=True)
class Walk:
    """Radii and loss of the frames."""

    eps: float
    """ε: frames go from −ε to 2ε."""
    norm: str = "linf"
    beta: float = 0.0
    """β of Eq. 4 for inverse adversarial frames; 0 is cross-entropy alone."""

    @property
    def grid(self) -> tuple[float, ...]:
        """The radii, ascending; negative for inverse adversarial frames."""
        return tuple(self.eps * k / INVERSE_FRAMES for k in range(-INVERSE_FRAMES, ADVERSARIAL_FRAMES + 1))


@dataclass(frozen=True)
class Frames:
    """Images at every ε, and the predictions of a network for each."""

    grid: tuple[float, ...]
    pixels: Tensor
    """uint8 (examples, frames, C, H, W)."""
    p: Tensor
    """(examples, frames, classes), the probability of each class; 0 where the network gives NaN."""
    guess: Tensor
    """(examples, frames), the predicted class; the number of classes where the network gives NaN."""


def make_frames(model: nn.Module, fast: nn.Module, images: Images, walk: Walk, device: torch.device) -> Frames:
    """Generate the frames of some images with `fast`, and classify them with `model`."""
    x, y = images.x.to(device), images.y.to(device)
    with crafting(model, "eval"), crafting(fast, "eval"), torch.no_grad():
        frames = list(_frames(model, fast, x, y, walk, tuple(range(len(images)))))
        logits = torch.stack([model(to_unit(frame)).double() for frame in frames], dim=1)
    p = logits.softmax(dim=2).nan_to_num(0.0)
    return Frames(walk.grid, torch.stack(frames, dim=1).cpu(), p.cpu(), predictions(logits).cpu())


def _frames(
    model: nn.Module, fast: nn.Module, x: Tensor, y: Tensor, walk: Walk, positions: tuple[int, ...]
) -> list[Tensor]:
    """Return the frames of uint8 images in the order of the grid, as uint8."""

    def cross_entropy(at: Tensor) -> Tensor:
        # In double precision, a network that is nearly certain still has a gradient.
        return F.cross_entropy(fast(at).double(), y, reduction="none")

    unit = to_unit(x)
    inverse: Callable[[Tensor], Tensor] = cross_entropy
    if walk.beta:
        attack = PGD(eps=walk.eps, step=None, norm=walk.norm)  # type: ignore[arg-type]
        x_adv = attack(fast, unit, y, SampleDraws(0, index=positions))
        inverse = inverse_loss(model, unit, y, x_adv, beta=walk.beta)
    below = _path(inverse, x, [-eps for eps in walk.grid if eps < 0][::-1], walk.norm, -1)
    above = _path(cross_entropy, x, [eps for eps in walk.grid if eps > 0], walk.norm, 1)
    return [*list(below)[::-1], x, *above]


def _path(
    loss: Callable[[Tensor], Tensor], x: Tensor, radii: Sequence[float], norm: str, direction: Literal[1, -1]
) -> Iterator[Tensor]:
    """Yield a frame for each radius, each computed from the one before it."""
    unit, at = to_unit(x), x
    value = loss(unit)
    for radius in radii:
        ball, step = BALLS[norm](unit, radius), max(radii[0], radius / STEPS_PER_RADIUS)
        moved = ascend(gradient_of(loss), to_unit(at), ball, step=step, steps=STEPS_PER_RADIUS, direction=direction)
        levels = (moved - unit) * 255
        frame = (x + (levels + 1e-3 * levels.sign()).trunc()).to(torch.uint8)  # rounded towards x, to stay in the ball
        after = loss(to_unit(frame))
        better = direction * (after - value) > 0
        at = torch.where(better.reshape(-1, *[1] * (x.ndim - 1)), frame, at)
        value = torch.where(better, after, value)
        yield at
