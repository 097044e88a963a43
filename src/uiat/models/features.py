"""Penultimate features of any classifier: the layer is found by looking, or named."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from uiat.crafting import crafting
from uiat.errors import UserError, unknown
from uiat.models.compiled import CompiledNetwork
from uiat.models.folding import Folded


@dataclass
class Trial:
    """One forward pass that leaves no trace: what came out, and which modules ran, in order."""

    output: Any = None
    ran: list[nn.Module] = field(default_factory=list)
    linear: list[tuple[nn.Module, Tensor]] = field(default_factory=list)
    """The linear layers that ran, with what each gave."""

    def record(self, module: nn.Module, _: object, output: Any) -> None:
        """Note that a module ran (a forward hook)."""
        self.ran.append(module)
        if isinstance(module, nn.Linear):
            self.linear.append((module, output.clone()))  # a clone: the model may change it in place


def locate(model: nn.Module, x: Tensor) -> str | None:
    """Return the name of the layer whose input is the features, or `None` to call `features` and `head`."""
    whole = _try(model, lambda: model(x), x.device)
    if _splits(model, x, whole):
        return "head" if isinstance(model.head, nn.Module) else None
    for layer, output in reversed(whole.linear):
        if _equal(output, whole.output):
            names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
            return names[layer]
    raise UserError(
        f"no final linear layer was found in {type(model).__name__}: name the layer whose input is the "
        'features, as in `features="fc"` or `--model.features fc`.'
    )


def _splits(model: nn.Module, x: Tensor, whole: Trial) -> bool:
    """Whether `head(features(x))` gives the same logits as the model, through the same modules.

    Equal numbers alone would not do: dropout or a fresh BatchNorm between the halves shows only in training.
    """
    features, head = getattr(model, "features", None), getattr(model, "head", None)
    if not (callable(features) and callable(head)):
        return False
    try:
        halves = _try(model, lambda: head(features(x)), x.device)
    except Exception:  # attributes of the same names with another meaning may fail in any way
        return False
    return halves.ran == [m for m in whole.ran if m is not model] and _equal(halves.output, whole.output)


def _try(model: nn.Module, run: Callable[[], Any], device: torch.device) -> Trial:
    """Run in evaluation mode and record; modes, hooks, random streams and gradients stay as they were."""
    trial = Trial()
    with ExitStack() as stack:
        for module in model.modules():
            stack.enter_context(module.register_forward_hook(trial.record))
        stack.enter_context(crafting(model))
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        stack.enter_context(torch.no_grad())
        trial.output = run()
    return trial


def _equal(a: Any, b: Any) -> bool:
    """Whether two results are the same logits; a diverged model's NaNs are equal, too."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype):
        return False
    return torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


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
    elif isinstance(model, CompiledNetwork):
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
