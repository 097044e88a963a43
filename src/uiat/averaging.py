"""Weight averaging: a moving average of the weights, evaluated and saved with the trained ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from uiat.errors import UserError
from uiat.fields import SHARE


class AveragedWeights:
    """A moving average of a network's weights: θ' ← τ'·θ' + (1 − τ')·θ with τ' = min(τ, (1 + t)/(10 + t)).

    Parameters and BatchNorm's running statistics are averaged; all other tensors are copied. The weights are kept as a
    state dict: no second network is built, and `swapped_in` loads them into the trained one.

    >>> averaged = AveragedWeights(model, decay=0.995)
    >>> averaged.update(model)  # after each step of the optimiser
    >>> with averaged.swapped_in(model):
    ...     result = evaluate(model, x, y, attacks=("natural",))
    >>> sorted(averaged.state_dict())  # for checkpoints
    ['updates', 'weights']

    Args:
        model: the network, before its first step.
        decay: τ; it is smaller during the warm-up.
    """

    weights: dict[str, torch.Tensor]
    """The averaged weights, as a state dict of the network."""
    updates: int
    """t: number of updates so far."""

    def __init__(self, model: nn.Module, decay: float = 0.995):
        if decay not in SHARE:
            raise UserError(f"the decay of averaged weights is {decay}: give {SHARE.advice(decay)}.")
        self.decay, self.updates = decay, 0
        self.weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self._averaged = [name for name in _averaged(model) if name in self.weights]
        self._copied = sorted(self.weights.keys() - set(self._averaged))

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Update the average with the weights after a step."""
        now, kept = model.state_dict(), self.next_decay
        self._check_names(now)
        ours, theirs = [self.weights[name] for name in self._averaged], [now[name] for name in self._averaged]
        torch._foreach_mul_(ours, kept)
        torch._foreach_add_(ours, theirs, alpha=1 - kept)
        for name in self._copied:
            self.weights[name].copy_(now[name])
        self.updates += 1

    @property
    def next_decay(self) -> float:
        """τ' of the next update."""
        return min(self.decay, (1 + self.updates) / (10 + self.updates))

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
        self._check_names(saved["weights"])
        for name, tensor in saved["weights"].items():
            self.weights[name].copy_(tensor)
        self.updates = int(saved["updates"])

    def _check_names(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Raise a `UserError` unless weights have the names of the average."""
        if differing := sorted(weights.keys() ^ self.weights.keys()):
            raise UserError(
                f"the averaged weights are of another network, which differs in {differing[0]!r}: give the one that the"
                " average was created for, without a wrapper such as that of torch.compile."
            )


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
