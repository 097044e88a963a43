"""Terms of the training losses: each maps a view of the batch to a scalar, a mean over its samples."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.crafting import crafting
from uiat.fields import RADIUS, SHARE, WEIGHT, Range, require
from uiat.objectives.divergence import best_other, kl_divergence
from uiat.precision import full
from uiat.types import View

Term = Callable[[View], Tensor]


@dataclass(frozen=True)
class Weighted:
    """A term with its name and its weight in the total."""

    name: str
    term: Term
    weight: float = 1.0

    def __post_init__(self) -> None:
        require(self, weight=Range())


@dataclass(frozen=True)
class AdversarialCrossEntropy:
    """CE(f(x̂), y), with optional label smoothing."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        require(self, label_smoothing=SHARE)

    def __call__(self, view: View) -> Tensor:
        """Return the mean over the batch."""
        return F.cross_entropy(view.adversarial, view.batch.y, label_smoothing=self.label_smoothing)


ce_adversarial = AdversarialCrossEntropy()
"""CE(f(x̂), y)."""


@dataclass(frozen=True)
class CleanCrossEntropy:
    """CE(f(x), y), with optional label smoothing."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        require(self, label_smoothing=SHARE)

    def __call__(self, view: View) -> Tensor:
        """Return the mean over the batch."""
        return F.cross_entropy(view.clean, view.batch.y, label_smoothing=self.label_smoothing)


def kl_to_target(view: View) -> Tensor:
    """KL(p ‖ f(x̂)), where p is the distribution given by the method's target."""
    return _kl(view).mean()


@dataclass(frozen=True)
class MARTBoostedCrossEntropy:
    """MART's CE(f(x̂), y) − log(1 − max_{k≠y} f_k(x̂)), with its authors' constants; the CE may have smoothed labels."""

    label_smoothing: float = 0.0
    needs_classes = "MART compares the probability of the label with that of the best other class"

    def __post_init__(self) -> None:
        require(self, label_smoothing=SHARE)

    def __call__(self, view: View) -> Tensor:
        """Return the mean over the batch."""
        wrong = best_other(view.adversarial.softmax(dim=1), view.batch.y)
        return AdversarialCrossEntropy(self.label_smoothing)(view) - torch.log(1.0001 - wrong + 1e-12).mean()


def mart_weighted_kl(view: View) -> Tensor:
    """MART's KL(f(x) ‖ f(x̂))·(1 − f_y(x)): misclassified samples weigh more."""
    true = view.clean.softmax(dim=1).gather(1, view.batch.y[:, None]).squeeze(1)
    return (_kl(view) * (1.0000001 - true)).mean()


@dataclass(frozen=True)
class HelperCrossEntropy:
    """HAT's CE(f(x + h·(x̂ − x)), helper(x̂)): the label of the extrapolated point is a naturally trained network's."""

    helper: nn.Module
    extrapolation: float

    def __post_init__(self) -> None:
        require(self, extrapolation=WEIGHT)

    def __call__(self, view: View) -> Tensor:
        """Return the mean over the batch; the extrapolated point is not clipped."""
        with torch.no_grad():
            label = self.helper(view.x_adv).argmax(dim=1)
        x = view.batch.x
        return F.cross_entropy(view.logits(x + self.extrapolation * (view.x_adv - x)), label)


@dataclass(frozen=True)
class GradientAlignment:
    """GradAlign's 1 − cos(∇ℓ(x), ∇ℓ(x + U(−ε, ε))), with a double backward through the second gradient.

    The first gradient is reused from FGSM if the view was crafted with batch statistics and in float32.
    """

    eps: float

    def __post_init__(self) -> None:
        require(self, eps=RADIUS)

    def __call__(self, view: View) -> Tensor:
        """Return the mean over the samples where both gradients are non-zero; computed in float32, never compiled."""
        device = view.batch.x.device
        at_x = None if torch.is_autocast_enabled(device.type) else view.gradient
        with full(device):
            return self._misalignment(view, at_x)

    def _misalignment(self, view: View, at_x: Tensor | None) -> Tensor:
        x, y = view.batch.x, view.batch.y
        if at_x is None:
            with crafting(view.model, "train"):
                at_x = _input_gradient(view.model, x, y, create_graph=False)
        at_x = at_x.flatten(1)
        near = x + self.eps * view.draws.uniform("align", x)
        at_near = _input_gradient(view.model, near, y, create_graph=True).flatten(1)
        squares = (at_x * at_x).sum(dim=1) * (at_near * at_near).sum(dim=1)
        valid = squares > 0
        # The square root of a placeholder, not of 0: its infinite derivative would turn the whole gradient into NaN.
        cosine = (at_x * at_near).sum(dim=1) / torch.where(valid, squares, 1).sqrt()
        return torch.where(valid, 1 - cosine, 0).sum() / valid.sum().clamp(min=1)


def _kl(view: View) -> Tensor:
    assert view.log_p is not None, "a method with a KL term has a target"
    return kl_divergence(view.log_p, view.adversarial.log_softmax(dim=1))


def _input_gradient(model: nn.Module, x: Tensor, y: Tensor, *, create_graph: bool) -> Tensor:
    x = x.detach().requires_grad_()
    loss = F.cross_entropy(model(x), y)
    return torch.autograd.grad(loss, x, create_graph=create_graph)[0]
