"""Examples on their way from friend to enemy: one image for each ε, from −ε (inverse adversary) to 2ε (adversary).

The radius grows in small steps, and each frame starts from the one before it. A frame is replaced only by one with a
lower loss on the friend's side, or a higher loss on the enemy's side: so with cross-entropy alone the true class never
becomes less likely towards the friend, nor more likely towards the enemy. Frames are made of whole pixel levels: the
image that a reader sees is the image that was classified.
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

STEPS = 4
"""Gradient steps at each radius."""
FRIENDS, ENEMIES = 8, 16
"""Frames on the friend's side (to −ε) and on the enemy's side (to 2ε), beside the natural image."""


@dataclass(frozen=True)
class Walk:
    """How examples are moved."""

    eps: float
    """ε: frames go from −ε to 2ε."""
    norm: str = "linf"
    beta: float = 0.0
    """β of Eq. 4 on the friend's side; 0 is cross-entropy alone."""

    @property
    def grid(self) -> tuple[float, ...]:
        """The radii, ascending; negative ones are the friend's."""
        return tuple(self.eps * k / FRIENDS for k in range(-FRIENDS, ENEMIES + 1))


@dataclass(frozen=True)
class Frames:
    """Images at every ε, and what the network says of each."""

    grid: tuple[float, ...]
    pixels: Tensor
    """uint8 (examples, frames, C, H, W)."""
    p: Tensor
    """(examples, frames, classes), the probability of each class; 0 where the network gives NaN."""
    guess: Tensor
    """(examples, frames), the predicted class; the number of classes where the network gives NaN."""


def make_frames(model: nn.Module, fast: nn.Module, images: Images, walk: Walk, device: torch.device) -> Frames:
    """Make all frames of some images; `fast` finds them, `model` says what they are."""
    x, y = images.x.to(device), images.y.to(device)
    with crafting(model, "eval"), crafting(fast, "eval"), torch.no_grad():
        frames = list(_frames(model, fast, x, y, walk, tuple(range(len(images)))))
        logits = torch.stack([model(to_unit(frame)).double() for frame in frames], dim=1)
    p = logits.softmax(dim=2).nan_to_num(0.0)
    return Frames(walk.grid, torch.stack(frames, dim=1).cpu(), p.cpu(), predictions(logits).cpu())


def _frames(
    model: nn.Module, fast: nn.Module, x: Tensor, y: Tensor, walk: Walk, places: tuple[int, ...]
) -> list[Tensor]:
    """Return the frames of uint8 images in the order of the grid, as uint8."""

    def cross_entropy(at: Tensor) -> Tensor:
        # In double precision a network that is nearly certain still has a gradient.
        return F.cross_entropy(fast(at).double(), y, reduction="none")

    unit = to_unit(x)
    friendly: Callable[[Tensor], Tensor] = cross_entropy
    if walk.beta:
        attack = PGD(eps=walk.eps, step=None, norm=walk.norm)  # type: ignore[arg-type]
        x_adv = attack(fast, unit, y, SampleDraws(0, index=places))
        friendly = inverse_loss(model, unit, y, x_adv, beta=walk.beta)
    friends = _path(friendly, x, [-eps for eps in walk.grid if eps < 0][::-1], walk.norm, -1)
    enemies = _path(cross_entropy, x, [eps for eps in walk.grid if eps > 0], walk.norm, 1)
    return [*list(friends)[::-1], x, *enemies]


def _path(
    loss: Callable[[Tensor], Tensor], x: Tensor, radii: Sequence[float], norm: str, direction: Literal[1, -1]
) -> Iterator[Tensor]:
    """Yield one frame a radius, each from the one before it."""
    unit, at = to_unit(x), x
    value = loss(unit)
    for radius in radii:
        ball, step = BALLS[norm](unit, radius), max(radii[0], radius / STEPS)
        moved = ascend(gradient_of(loss), to_unit(at), ball, step=step, steps=STEPS, direction=direction)
        levels = (moved - unit) * 255
        frame = (x + (levels + 1e-3 * levels.sign()).trunc()).to(torch.uint8)  # towards x: never out of the ball
        after = loss(to_unit(frame))
        better = direction * (after - value) > 0
        at = torch.where(better.reshape(-1, *[1] * (x.ndim - 1)), frame, at)
        value = torch.where(better, after, value)
        yield at
