"""Instance-wise inverse adversarial examples (Eq. 3, Alg. S1)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from uiat.attacks.ascent import Start, ascend, gradient_of, starting_point
from uiat.balls import BALLS, Norm
from uiat.crafting import crafting
from uiat.fields import RADIUS, STEP_COUNT, WEIGHT, require
from uiat.models.features import Features
from uiat.objectives.inverse_loss import Reduction, inverse_loss
from uiat.rng import Draws
from uiat.targets.target import Target
from uiat.types import Clock, View


@dataclass(frozen=True)
class InstanceInverse:
    """x̌ ← Π(x̌ − α'·sign ∇L_Inv(x̌, y)), n times for each sample.

    >>> IAT(inverse=InstanceInverse(eps=4 / 255, steps=5)).inverse.steps
    5
    """

    eps: float = 4 / 255
    """ε': radius of the inverse ball."""
    step: float = 2 / 255
    """α': step size."""
    steps: int = 5
    """n: number of steps."""
    beta: float = 1.0
    """β of Eq. 4: weight of the feature-level term; with 0 the loss is cross-entropy."""
    start: Start = "gaussian"
    """Random start: `gaussian` 0.001·N(0, 1) per sample (Alg. S1), `uniform` or `none`."""
    reduction: Reduction = "mean"
    """Whether L1 in Eq. 4 is a mean or a sum over features."""
    norm: Norm = "linf"
    """The ball's norm."""

    def __post_init__(self) -> None:
        require(self, eps=RADIUS, step=WEIGHT, steps=STEP_COUNT, beta=WEIGHT)

    def __call__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        x_adv: Tensor,
        draws: Draws | None = None,
        penultimate: Features | None = None,
    ) -> Tensor:
        """Return inverse adversarial examples x̌ for x; the model stays in its mode (normally `eval`)."""
        ball = BALLS[self.norm](x, self.eps)
        loss = inverse_loss(model, x, y, x_adv, beta=self.beta, reduction=self.reduction, penultimate=penultimate)
        start = ball.project(starting_point(self.start, ball, x, draws or Draws(), "inverse"))
        gradient = gradient_of(loss)
        return ascend(gradient, start, ball, step=self.step, steps=self.steps, direction=-1)


class InstanceInverseTarget(Target):
    """p = f(x̌), with an x̌ for each sample."""

    def __init__(self, inverse: InstanceInverse, detach: bool = True, running: bool = False):
        super().__init__()
        self.inverse, self.detach, self.running = inverse, detach, running
        self.penultimate = Features()

    def prepare(self, model: nn.Module, views: Sequence[View], clock: Clock) -> None:
        """Craft x̌ for the whole batch before predictions change BatchNorm's running statistics."""
        for view in views:
            with crafting(model, view.mode) as network:
                batch = view.batch
                view.x_inv = self.inverse(network, batch.x, batch.y, view.x_adv, view.draws, self.penultimate)

    def forward(self, view: View, clock: Clock) -> Tensor:
        """Return log f(x̌)."""
        if view.x_inv is None:
            self.prepare(view.model, [view], clock)
        assert view.x_inv is not None
        return view.predict(view.x_inv, detach=self.detach, running=self.running)
