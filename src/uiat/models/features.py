"""Penultimate features of any classifier: the input of its last layer, found automatically or given by name."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast
from weakref import ref

import torch
from torch import Tensor, nn

from uiat.crafting import AcceleratedNetwork
from uiat.errors import UserError, unknown
from uiat.models.probe import untouched


class Features:
    """Extracts the features of a model; the layer is searched for at the first call with a model, then cached.

    The features are the input of the layer called `name` (a dotted name; by default the model's own
    `penultimate_layer`, if it has one). Without a name they are `model.features(x)` if `model.head` turns that into
    the logits, otherwise the input of the final `nn.Linear`. The search runs the model in evaluation mode on two
    samples and changes neither statistics nor random streams. A compiled model runs uncompiled here.
    """

    def __init__(self, name: str = ""):
        self.name = name
        self._model: ref[nn.Module] | None = None
        self._layer: str | None = None

    def __call__(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features (N, D) and the logits of x, differentiable and from a single forward pass."""
        if isinstance(model, AcceleratedNetwork):
            if not self.name:
                return model.penultimate(x)
            model = model.original
        model = getattr(model, "_orig_mod", model)  # compiled code ignores hooks registered later
        layer = self.layer(model, x)
        if layer is not None:
            return _input_of(layer, model, x)
        halves = cast(Any, model)
        f: Tensor = halves.features(x)
        return f.flatten(1), halves.head(f)

    def layer(self, model: nn.Module, x: Tensor) -> str | None:
        """Return the name of the layer whose input is the features, or `None` to call `features` and `head`."""
        if name := self.name or getattr(model, "penultimate_layer", ""):
            return cast(str, name)
        if self._model is None or self._model() is not model:
            self._layer, self._model = _search(model, x[:2].detach()), ref(model)
        return self._layer

    def __reduce__(self) -> tuple[type["Features"], tuple[str]]:
        return Features, (self.name,)  # a copy may be used with a copy of the model: it searches again


def penultimate(model: nn.Module, x: Tensor, features: str = "") -> tuple[Tensor, Tensor]:
    """Return the features (N, D) and the logits of x; for repeated calls, `Features` is faster.

    Example:
        f, logits = penultimate(model, x)
        f, logits = penultimate(model, x, "classifier.6")
    """
    return Features(features)(model, x)


Call = tuple[nn.Module, Any, Any]
"""A module that ran, its first argument, and its output."""


def _search(model: nn.Module, x: Tensor) -> str | None:
    """Return the layer whose input is the features, or `None` if only `model.features(x)` gives them."""
    logits, calls = _try(model, lambda: model(x))
    features = _features_of_halves(model, x, logits, calls)
    heads = [
        layer
        for layer, value, output in calls
        if _equal(output, logits) and (isinstance(layer, nn.Linear) if features is None else _equal(value, features))
    ]
    if heads:
        names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
        return names[heads[-1]]
    if features is not None:
        return None
    raise UserError(
        f"no final linear layer was found in {type(model).__name__}: name the layer whose input is the "
        'features, as in `features="fc"` or `--model.features fc`.'
    )


def _features_of_halves(model: nn.Module, x: Tensor, logits: Any, calls: list[Call]) -> Any:
    """Return `features(x)` if `head(features(x))` gives the same logits as the model, through the same modules.

    Equal numbers are not enough: dropout or a new BatchNorm between the halves has an effect in training only.
    """
    features, head = getattr(model, "features", None), getattr(model, "head", None)
    if not (callable(features) and callable(head)):
        return None
    try:
        (f, head_logits), halves = _try(model, lambda: (f := features(x), head(f)))
    except Exception:  # attributes of these names may mean something else
        return None
    same = [layer for layer, *_ in halves] == [layer for layer, *_ in calls if layer is not model]
    return f if same and _equal(head_logits, logits) else None


def _try(model: nn.Module, run: Callable[[], Any]) -> tuple[Any, list[Call]]:
    """Run in evaluation mode without side effects; return the result and the calls in the order of completion."""
    calls: list[Call] = []

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        calls.append((module, _kept(next(iter((*args, *kwargs.values())), None)), _kept(output)))

    with ExitStack() as stack:
        for module in model.modules():
            stack.enter_context(module.register_forward_hook(record, with_kwargs=True))
        stack.enter_context(untouched(model))
        stack.enter_context(torch.no_grad())
        model.eval()
        return run(), calls


def _kept(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value  # the model may change it in place


def _equal(a: Any, b: Any) -> bool:
    """Return whether two results are equal; NaNs of a diverged model count as equal."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype):
        return False
    return torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


def _input_of(name: str, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Run the model and return the input of the named layer, and the logits."""
    layers = dict(model.named_modules(remove_duplicate=False))
    if name not in layers:
        raise unknown("layer", name, filter(None, layers))
    seen: list[Any] = []

    def see(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(_kept(next(iter((*args, *kwargs.values())), None)))

    with layers[name].register_forward_pre_hook(see, with_kwargs=True):
        logits: Tensor = model(x)
    if not seen:
        raise UserError(f"the layer {name!r} did not run when the model was called: name another one.")
    f = seen[-1]  # the last, should the layer run more than once
    if not isinstance(f, Tensor) or f.ndim < 2 or len(f) != len(x):
        raise UserError(f"the input of {name!r} is not a tensor with one row per sample: name another layer.")
    return f.flatten(1), logits
