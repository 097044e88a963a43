"""The fast path: attacks run through a copy of the network with BatchNorm folded and channels_last memory."""

import torch
from torch import Tensor, nn

from uiat.crafting import craft_through, crafting, crafting_copy, forward_of, run_through
from uiat.errors import UserError
from uiat.models.compiled import CompiledForward, CompiledNetwork
from uiat.models.features import features_layer
from uiat.models.folding import Folded, fold
from uiat.models.layout import GRADIENTS, close, keeps_channels_last, to_channels_last
from uiat.models.untouched import full_precision, untouched
from uiat.rng import generator
from uiat.types import DataSpec

__all__ = ["keeps_channels_last", "speed_up", "still_same", "to_channels_last", "trial_batch", "verified_fold"]

CALLS = 3
"""How often the model is asked: one that decides by chance, or by a count of its calls, answers differently."""
DRIFT = 1e-2
"""How far the copy's logits may be from the model's in a later look, relative to the largest: training can leave
weights that round worse than fresh ones, but a copy that no longer follows is another function."""


def speed_up(model: nn.Module, x: Tensor, *, compile: bool = False) -> Folded | None:
    """Let every method and attack of this package craft its examples against `model` through a folded copy.

    The copy follows the model's weights; the loss and everything else still use the model itself. `None` where there is
    nothing to fold, where tracing cannot follow the model, or where the copy does not compute the same: then the model
    is used as before. Call it before anything hooks into the layers, and again after a change of the layers themselves.

    Args:
        model: the classifier.
        x: two or more samples, to look for the features and to compare the two.
        compile: use torch.compile for the copy (or, where there is none, for the model in attacks) and for the forwards
            of the loss; where it fails, one line says so.
    """
    craft_through(model, None)
    run_through(model, None)
    try:
        layer = features_layer(model, x)
    except UserError:  # a method that needs no features never hears of it
        layer = ""
    copy = verified_fold(model, x, layer)
    if compile:
        forward = CompiledForward(model) if copy is not None else CompiledForward(model, "the network")
        run_through(model, forward)
        if copy is None:
            craft_through(model, CompiledNetwork(model, forward))
        else:
            copy.compile()
    if copy is not None:
        craft_through(model, copy)
    return copy


def verified_fold(model: nn.Module, x: Tensor, features: str | None = "") -> Folded | None:
    """Return a folded copy that computes what the model does, in the memory layout it can run in; else `None`.

    Logits and the gradient that an attack follows are compared, and the model is asked more than once. It stays as it
    is, and so does every random stream.

    Args:
        model: the classifier.
        x: two or more samples.
        features: as in `fold`.
    """
    try:
        copy = fold(model, features)
        for memory in (torch.channels_last, torch.contiguous_format) if copy is not None else ():
            assert copy is not None
            copy.lay_out(memory)
            if _same(model, copy, x[:2].detach()):
                return copy
    except Exception:  # whatever it is, the model itself is still there
        return None
    return None


def still_same(model: nn.Module, x: Tensor) -> bool:
    """Whether the copy that attacks run through, if there is one, computes what the model does now; if not, drop it.

    What changes in a model without a change of its tensors, such as a number that its forward uses, is frozen in the
    copy. Two samples show it, and nothing else is changed by the look.
    """
    copy = crafting_copy(model)
    if not isinstance(copy, Folded):
        return True
    with untouched(model), full_precision(x.device), torch.no_grad():
        try:
            with crafting(model):
                theirs = model(x)
                same = not bool(theirs.isfinite().all()) or close(copy.whole(x), theirs, DRIFT)
        except Exception:  # the model may have changed in any way
            same = False
    if not same:
        forward = forward_of(model)
        craft_through(model, CompiledNetwork(model, forward) if isinstance(forward, CompiledForward) else None)
    return same


def _same(model: nn.Module, copy: Folded, x: Tensor) -> bool:
    with untouched(model) as streams, full_precision(x.device), crafting(model):
        try:
            expected, slope = _slope(model, x)
            ours, found = _slope(copy, x)
            with torch.no_grad():
                others = [*(model(x) for _ in range(CALLS - 1)), copy(x)]
                splits = copy.split is None or close(copy.penultimate(x)[1], ours)
        except Exception:  # a layout, or an operation in place, that the forward does not stand
            return False
        steep = float((found - slope).norm()) <= GRADIENTS * max(float(slope.norm()), 1e-12)
        return splits and steep and all(close(o, expected) for o in (ours, *others)) and not streams.moved()


def _slope(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits, and the gradient of a sum of them with respect to x."""
    with torch.enable_grad():
        at = x.clone().requires_grad_()
        logits: Tensor = network(at)
        weights = torch.arange(1, logits[0].numel() + 1).to(logits).view_as(logits[0])
        (gradient,) = torch.autograd.grad((logits * weights).sum(), at, allow_unused=True)
    return logits.detach(), torch.zeros_like(x) if gradient is None else gradient


def trial_batch(data: DataSpec, device: torch.device) -> Tensor:
    """Return two samples of noise."""
    return torch.rand((2, *data.shape), generator=generator(0, "features")).to(device)
