"""The inverse adversarial loss of Eq. 4, which inverse attacks minimise."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.models.features import Features
from uiat.precision import to_float32

Reduction = Literal["mean", "sum"]


def inverse_loss(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    x_adv: Tensor,
    *,
    beta: float,
    reduction: Reduction = "mean",
    penultimate: Features | None = None,
) -> Callable[[Tensor], Tensor]:
    """Return x̌ ↦ CE(f(x̌), y) + β·[L1(F(x̌), F(x)) − L1(F(x̌), F(x̂))], a value for each sample.

    The features of x and x̂ are constants and are computed once, here; with β = 0 they are not computed.

    Args:
        model: the classifier f, in its crafting mode.
        x: natural samples.
        y: their labels.
        x_adv: their adversarial examples x̂.
        beta: β, weight of the feature-level term.
        reduction: whether L1 is a mean or a sum over features.
        penultimate: extracts the features; a reused one searches for the layer only once.
    """
    if beta == 0:
        return lambda x_inv: F.cross_entropy(to_float32(model(x_inv)), y, reduction="none")
    penultimate = penultimate or Features()
    with torch.no_grad():
        natural = to_float32(penultimate(model, x)[0])
        adversarial = to_float32(penultimate(model, x_adv)[0])

    def distance(a: Tensor, b: Tensor) -> Tensor:
        gap = (a - b).abs()
        return gap.mean(dim=1) if reduction == "mean" else gap.sum(dim=1)

    def loss(x_inv: Tensor) -> Tensor:
        features, logits = map(to_float32, penultimate(model, x_inv))
        pull = distance(features, natural) - distance(features, adversarial)
        return F.cross_entropy(logits, y, reduction="none") + beta * pull

    return loss
