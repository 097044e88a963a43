"""Counts the passes through a network as they happen: the honest unit of what a method costs."""

from typing import Any

from torch import Tensor, nn


class PassCounter:
    """Samples sent forward and backward through a network since counting began.

    It listens at the network's first layer with parameters. A backward counts as an input-backward when the parameters
    were frozen on the way forward (an attack), else as a weight-backward (an update).
    """

    def __init__(self, model: nn.Module, counts: dict[str, int] | None = None):
        self.counts = {"forward": 0, "input_backward": 0, "weight_backward": 0, **(counts or {})}
        stem = next((m for m in model.modules() if list(m.parameters(recurse=False))), model)
        self._handle = stem.register_forward_hook(self._forward)

    def close(self) -> None:
        """Stop counting."""
        self._handle.remove()

    def _forward(self, stem: nn.Module, _inputs: Any, output: Tensor) -> None:
        self._add("forward", len(output))
        if output.requires_grad:
            trained = any(p.requires_grad for p in stem.parameters(recurse=False))
            kind = "weight_backward" if trained else "input_backward"
            output.register_hook(lambda grad: self._add(kind, len(grad)))

    def _add(self, kind: str, samples: int) -> None:
        self.counts[kind] += samples
