"""Weight averaging: a moving average of the weights, evaluated and saved with the trained ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from uiat.config import Averaging


class Average:
    """The averaged weights of one network.

    Parameters and BatchNorm's running statistics are averaged; all other tensors are copied. The weights are kept as a
    state dict: no second network is built, and `swapped_in` loads them into the trained one.
    """

    def __init__(self, model: nn.Module, plan: Averaging):
        self.plan, self.updates = plan, 0
        self.weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self._averaged = [name for name in _averaged(model) if name in self.weights]
        self._copied = sorted(self.weights.keys() - set(self._averaged))

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Update the average with the weights after a step."""
        now, kept = model.state_dict(), self.plan.at(self.updates)
        ours, theirs = [self.weights[name] for name in self._averaged], [now[name] for name in self._averaged]
        torch._foreach_mul_(ours, kept)
        torch._foreach_add_(ours, theirs, alpha=1 - kept)
        for name in self._copied:
            self.weights[name].copy_(now[name])
        self.updates += 1

    @contextmanager
    def swapped_in(self, model: nn.Module) -> Iterator[nn.Module]:
        """Load the averaged weights within the context; the trained ones are restored bit by bit."""
        trained = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        try:
            model.load_state_dict(self.weights)
            yield model
        finally:
            model.load_state_dict(trained)

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {"updates": self.updates, "weights": self.weights}

    @torch.no_grad()
    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Resume from a saved state."""
        if saved["weights"].keys() != self.weights.keys():
            raise ValueError("the averaged weights are another network's")
        for name, tensor in saved["weights"].items():
            self.weights[name].copy_(tensor)
        self.updates = int(saved["updates"])


def _averaged(model: nn.Module) -> list[str]:
    """Return the names of averaged tensors: other buffers may be masks with infinities, or counters.

    A weight or layer with two names appears under both, as in the state dict.
    """
    named = model.named_parameters(remove_duplicate=False)
    names = [name for name, parameter in named if parameter.is_floating_point()]
    for prefix, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, _BatchNorm) and module.running_mean is not None:
            names += [f"{prefix}.{kind}".lstrip(".") for kind in ("running_mean", "running_var")]
    return names
