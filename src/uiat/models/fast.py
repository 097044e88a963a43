"""The fast path: attacks run through a copy of the network with BatchNorm folded and channels_last memory."""

import torch
from torch import Tensor, nn

from uiat.crafting import craft_through, crafting
from uiat.errors import UserError
from uiat.models.features import features_layer
from uiat.models.folding import Folded, fold

TOLERANCE = 1e-4
"""How far the copy's logits may be from the model's, relative to the largest."""


def speed_up(model: nn.Module, x: Tensor) -> Folded | None:
    """Let every method and attack of this package craft its examples against `model` through a folded copy.

    The copy follows the model's weights; the loss and everything else still use the model itself. `None` where there is
    nothing to fold, where tracing cannot follow the model, or where the copy does not compute the same: then the model
    is used as before. Call it before anything hooks into the layers, and again after a change of the layers themselves.

    Args:
        model: the classifier.
        x: two or more samples, to look for the features and to compare the two.
    """
    craft_through(model, None)
    try:
        layer = features_layer(model, x)
    except UserError:  # a method that needs no features never hears of it
        layer = ""
    copy = fold(model, layer)
    if copy is None or not _same(model, copy, x):
        return None
    craft_through(model, copy)
    return copy


@torch.no_grad()
def _same(model: nn.Module, copy: Folded, x: Tensor) -> bool:
    with crafting(model), torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
        ours, theirs = copy(x), model(x)
        splits = copy.split is None or torch.equal(copy.split(x)[1], ours)
    return splits and bool((ours - theirs).abs().max() <= TOLERANCE * theirs.abs().max().clamp(min=1e-12))
