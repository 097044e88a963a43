"""Class-specific universal inverse perturbations (Eq. 5 and 6, Alg. 1): one z_c for each class c."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from uiat.attacks.ascent import GAUSSIAN, Gradient, ascend, gradient_of
from uiat.balls import BALLS, PIXELS, Ball, Norm, per_row
from uiat.crafting import crafting
from uiat.distributed import all_reduce_sum
from uiat.fields import RADIUS, WEIGHT, require
from uiat.models.features import Features
from uiat.objectives.inverse_loss import Reduction, inverse_loss
from uiat.rng import generator
from uiat.targets.target import Target
from uiat.types import Clock, DataSpec, View

FEW_CLASSES = 128
"""With at most this many classes, all rows of z are computed: faster than waiting for the classes of the batch."""


@dataclass(frozen=True)
class UniversalInverse:
    """z_c ← Π(z_c − α'·sign ∇Σ L_Inv(x + z_c, c)), one step per batch, and x̌ = clip(x + z_y).

    >>> UIAT(inverse=UniversalInverse(eps=2 / 255, beta=0)).inverse.beta
    0
    """

    eps: float = 4 / 255
    """ε': radius of the inverse ball."""
    step: float = 4 / 255
    """α': step size."""
    beta: float = 1.0
    """β of Eq. 4: weight of the feature-level term; with 0 the loss is cross-entropy."""
    reduction: Reduction = "mean"
    """Whether L1 in Eq. 4 is a mean or a sum over features."""
    norm: Norm = "linf"
    """The ball's norm."""

    def __post_init__(self) -> None:
        require(self, eps=RADIUS, step=WEIGHT, beta=WEIGHT)


class UniversalInverseTarget(Target):
    """p = f(clip(x + z_y)), after an update of z from the whole batch."""

    needs_classes = "z is a perturbation of one class"

    z: Tensor
    """The universal inverse perturbation of each class: (classes, *shape of a sample)."""

    def __init__(
        self, inverse: UniversalInverse, data: DataSpec, *, seed: int = 0, detach: bool = True, running: bool = False
    ):
        super().__init__()
        self.inverse, self.detach, self.running = inverse, detach, running
        self.penultimate = Features()
        z = GAUSSIAN * torch.randn((data.num_classes, *data.shape), generator=generator(seed, "z"))
        self.register_buffer("z", self._ball(z).project(z))

    def prepare(self, model: nn.Module, views: Sequence[View], clock: Clock) -> None:
        """Take one descent step on z from the gradient summed over the whole batch (Alg. 1, lines 4 to 12).

        A class absent from the batch keeps its z. With few classes all rows are computed and those of the batch are
        selected, so that the host does not wait for a GPU; otherwise only the rows of the batch are computed, and the
        cost does not grow with the number of classes.
        """
        here = self._present(views)
        if self.has_few_classes:
            moved = self._descend(model, views, self.z, [view.batch.y for view in views])
            self.z.copy_(torch.where(per_row(here, moved), moved, self.z))
        else:
            present, positions = here.nonzero().flatten(), (here.cumsum(0) - 1).clamp(min=0)
            self.z[present] = self._descend(model, views, self.z[present], [positions[view.batch.y] for view in views])

    def forward(self, view: View, clock: Clock) -> Tensor:
        """Return log f(x̌) with the current z."""
        view.x_inv = add_clipped(view.batch.x, self.z, view.batch.y)
        return view.predict(view.x_inv, detach=self.detach, running=self.running)

    @property
    def has_few_classes(self) -> bool:
        """Whether all rows of z are computed, or copied, at once."""
        return len(self.z) <= FEW_CLASSES

    def _present(self, views: Sequence[View]) -> Tensor:
        """Return whether each class is in the global batch."""
        seen = torch.zeros(len(self.z), device=self.z.device)
        for view in views:
            seen[view.batch.y[: view.batch.count]] = 1
        return all_reduce_sum(seen) > 0

    def _descend(self, model: nn.Module, views: Sequence[View], z: Tensor, rows: Sequence[Tensor]) -> Tensor:
        """Return z after the step; `rows` has, for each view, the row of z of each sample."""
        with crafting(model, views[0].mode) as network:
            shares = [self._gradient(network, view, where) for view, where in zip(views, rows, strict=True)]
            return ascend(
                lambda at: all_reduce_sum(reduce(torch.add, [share(at) for share in shares])),
                z,
                self._ball(z),
                step=self.inverse.step,
                steps=1,
                direction=-1,
            )

    def _gradient(self, model: nn.Module, view: View, where: Tensor) -> Gradient:
        x, inverse = view.batch.x, self.inverse
        loss = inverse_loss(
            model,
            x,
            view.batch.y,
            view.x_adv,
            beta=inverse.beta,
            reduction=inverse.reduction,
            penultimate=self.penultimate,
        )
        counts = 0.0 if view.batch.padding else 1.0
        return gradient_of(lambda z: counts * loss(add_clipped(x, z, where)), where)

    def _ball(self, z: Tensor) -> Ball:
        return BALLS[self.inverse.norm](torch.zeros_like(z), self.inverse.eps, box=None)


def add_clipped(x: Tensor, z: Tensor, which: Tensor) -> Tensor:
    """Return x̌ = clip(x + z[which], 0, 1) in the dtype of x; clipped pixels pass no gradient to z."""
    return (x + z.index_select(0, which)).clamp(*PIXELS).to(x.dtype)
