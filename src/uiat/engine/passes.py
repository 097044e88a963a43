"""Counts the passes through a network as they happen: the honest unit of what a method costs."""

from typing import Any

import torch
from torch import Tensor, nn

from uiat.crafting import crafting_copy
from uiat.distributed import is_main, total
from uiat.models.folding import Folded


class PassCounter:
    """Samples sent forward and backward through a network since counting began.

    It listens at the first layer with parameters, of the network and of the copy that its attacks run through, so the
    copy must be there before the counter (see `uiat.models.fast`). A backward counts as an input-backward when the
    parameters were frozen on the way forward (an attack), else as a weight-backward (an update).
    """

    def __init__(self, model: nn.Module, counts: dict[str, int] | None = None):
        self.counts = {"forward": 0, "input_backward": 0, "weight_backward": 0, **(counts or {})}
        stems = [next((m for m in model.modules() if list(m.parameters(recurse=False))), model)]
        copy = crafting_copy(model)
        # A layer that the copy shares with the model has the model's hooks, too.
        if isinstance(copy, Folded) and copy.stem._forward_hooks is not stems[0]._forward_hooks:
            stems.append(copy.stem)
        self._handles = [stem.register_forward_hook(self._forward) for stem in stems]

    def everywhere(self) -> dict[str, int]:
        """Return the counts of all processes together."""
        return dict(zip(self.counts, total(torch.tensor(list(self.counts.values()))).tolist(), strict=True))

    def load(self, counts: dict[str, int]) -> None:
        """Go on from saved counts; the main process holds what all had counted."""
        self.counts.update({name: count if is_main() else 0 for name, count in counts.items()})

    def close(self) -> None:
        """Stop counting."""
        for handle in self._handles:
            handle.remove()

    def _forward(self, stem: nn.Module, _inputs: Any, output: Tensor) -> None:
        self._add("forward", len(output))
        if output.requires_grad:
            trained = any(p.requires_grad for p in stem.parameters(recurse=False))
            kind = "weight_backward" if trained else "input_backward"
            output.register_hook(lambda grad: self._add(kind, len(grad)))

    def _add(self, kind: str, samples: int) -> None:
        self.counts[kind] += samples
