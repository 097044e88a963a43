"""The fast path: attacks run through a copy of the network with BatchNorm folded and channels_last memory."""

import torch
from torch import Tensor, nn

from uiat.crafting import craft_through, crafting, run_through
from uiat.errors import UserError
from uiat.models.compiled import CompiledForward
from uiat.models.features import features_layer
from uiat.models.folding import Folded, fold

TOLERANCE = 1e-4
"""How far the copy's logits may be from the model's, relative to the largest."""


def speed_up(model: nn.Module, x: Tensor, *, compile: bool = False) -> Folded | None:
    """Let every method and attack of this package craft its examples against `model` through a folded copy.

    The copy follows the model's weights; the loss and everything else still use the model itself. `None` where there is
    nothing to fold, where tracing cannot follow the model, or where the copy does not compute the same: then the model
    is used as before. Call it before anything hooks into the layers, and again after a change of the layers themselves.

    Args:
        model: the classifier.
        x: two or more samples, to look for the features and to compare the two.
        compile: use torch.compile for the copy and for the forwards of the loss; where it fails, one line says so.
    """
    craft_through(model, None)
    run_through(model, CompiledForward(model) if compile else None)
    try:
        layer = features_layer(model, x)
    except UserError:  # a method that needs no features never hears of it
        layer = ""
    copy = fold(model, layer)
    if copy is None or not _same(model, copy, x):
        return None
    if compile:
        copy.compile()
    craft_through(model, copy)
    return copy


def to_channels_last(model: nn.Module) -> nn.Module:
    """Keep the weights of convolutions in channels_last memory, unless training would meet a fault of oneDNN on CPUs.

    It computes wrong gradients for the weights of strided 1×1 convolutions with few channels in that memory, or writes
    beyond its own (oneDNN's issue 6035). The bundled networks have none.
    """
    strided = any(
        isinstance(layer, nn.Conv2d) and max(layer.kernel_size) == 1 and max(layer.stride) > 1
        for layer in model.modules()
    )
    on_cpu = any(parameter.device.type == "cpu" for parameter in model.parameters())
    if not (strided and on_cpu):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


@torch.no_grad()
def _same(model: nn.Module, copy: Folded, x: Tensor) -> bool:
    with crafting(model), torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
        ours, theirs = copy(x), model(x)
        splits = copy.split is None or torch.equal(copy.penultimate(x)[1], ours)
    return splits and bool((ours - theirs).abs().max() <= TOLERANCE * theirs.abs().max().clamp(min=1e-12))
