"""Warnings about likely mistakes in a custom training loop: a clock that does not advance, a model in eval mode."""

import warnings

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from uiat.crafting import AcceleratedNetwork
from uiat.types import Batch, Clock

SAME_CLOCKS = 20
"""Consecutive batches with the same clock after which a warning is given."""
CLOCK = (
    f"the clock has shown epoch {{}}, step {{}} in {SAME_CLOCKS} calls in a row: give it the epoch, from 1, and the "
    "step within the epoch. A constant clock repeats the random starts of attacks, and never reaches the epochs of "
    "momentum and of the one-off strategy."
)
MODE = (
    "the model is in eval mode while its loss is computed, so that BatchNorm's running statistics are not updated and "
    "dropout is inactive: call model.train() before the steps of each epoch."
)


class LoopCheck:
    """Warns about each mistake once, at the line that calls the method; it has no state in the state dict."""

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self._clock: Clock | None = None
        self._count = 0

    def __call__(self, model: nn.Module, batch: Batch, clock: Clock) -> None:
        """Check one call of a method."""
        if clock != self._clock:
            self._clock, self._count = clock, 0
        self._count += batch.start == 0 and not batch.padding  # micro-batches of one batch share its clock
        if self._count == SAME_CLOCKS:
            self._warn(CLOCK.format(clock.epoch, clock.step), "clock")
        model = model.original if isinstance(model, AcceleratedNetwork) else model
        if torch.is_grad_enabled() and not model.training:  # without gradients, any mode is fine
            layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm | _DropoutNd)]
            if layers and not any(layer.training for layer in layers):
                self._warn(MODE, "mode")

    def _warn(self, message: str, about: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(message, UserWarning, stacklevel=6)
