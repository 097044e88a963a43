"""Penultimate features of any classifier, with its logits, from one forward pass."""

from typing import Any, cast
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from uiat.errors import UserError, unknown
from uiat.models.compiled import Through
from uiat.models.folding import Folded
from uiat.models.search import locate

# Names and not layers: a layer that is the model itself would keep its own entry alive.
_FOUND: WeakKeyDictionary[nn.Module, str | None] = WeakKeyDictionary()


def penultimate(model: nn.Module, x: Tensor, features: str = "") -> tuple[Tensor, Tensor]:
    """Return the features (N, D) and the logits of x, differentiable and from a single forward pass.

    The features are the input of the layer called `features` (a dotted name; by default the model's own
    `penultimate_layer`, if it has one). With no name they are `model.features(x)` where `model.head` turns
    that into the logits, and otherwise the input of the final `nn.Linear`. Which of the two is found out once
    for each model, in evaluation mode on two samples, without a change to its statistics or to any random
    stream. A compiled model runs uncompiled here.

    Example:
        f, logits = penultimate(model, x)
        f, logits = penultimate(model, x, "classifier.6")
    """
    if isinstance(model, Folded):
        if model.split is not None and not features:
            return model.penultimate(x)
        model = model.original
    elif isinstance(model, Through):
        model = model.original
    model = getattr(model, "_orig_mod", model)  # compiled code does not see hooks that come later
    layer = features or features_layer(model, x)
    if layer is not None:
        return _input_of(layer, model, x)
    halves = cast(Any, model)
    f: Tensor = halves.features(x)
    return f.flatten(1), halves.head(f)


def features_layer(model: nn.Module, x: Tensor) -> str | None:
    """Return the name of the layer whose input is the features, or `None` to call `features` and `head`."""
    return getattr(model, "penultimate_layer", "") or _search(model, x)


def _search(model: nn.Module, x: Tensor) -> str | None:
    """Return where the features of this model are (see `locate`), looking only once."""
    if model not in _FOUND:
        _FOUND[model] = locate(model, x[:2].detach())
    return _FOUND[model]


def _input_of(name: str, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Run the model and return what the named layer saw, and the logits."""
    layers = dict(model.named_modules(remove_duplicate=False))
    if name not in layers:
        raise unknown("layer", name, filter(None, layers))
    seen: list[Any] = []

    def see(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        value = next(iter((*args, *kwargs.values())), None)
        seen.append(value.clone() if isinstance(value, Tensor) else value)  # a layer may work in place

    with layers[name].register_forward_pre_hook(see, with_kwargs=True):
        logits: Tensor = model(x)
    if not seen:
        raise UserError(f"the layer {name!r} did not run when the model was called: name another one.")
    f = seen[-1]  # the last, should the layer run more than once
    if not isinstance(f, Tensor) or f.ndim < 2 or len(f) != len(x):
        raise UserError(f"the input of {name!r} is not a tensor with one row a sample: name another layer.")
    return f.flatten(1), logits
