"""Finding, once for each model, where its penultimate features are."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from uiat.crafting import crafting
from uiat.errors import UserError


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
