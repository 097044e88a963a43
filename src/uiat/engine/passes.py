"""Counts the passes through a network as they happen: the honest unit of what a method costs."""

from typing import Any

import torch
from torch import Tensor, nn

from uiat.crafting import crafting_copy, forward_of
from uiat.distributed import is_main, total
from uiat.models.compiled import CompiledForward
from uiat.models.folding import Folded


class PassCounter:
    """Samples sent forward and backward through a network since counting began.

    It listens at the network's first layer with parameters, and to the folded copy and the compiled forward, which must
    be there before the counter (see `uiat.models.fast`). A backward counts as an input-backward when the
    parameters were frozen on the way forward (an attack), else as a weight-backward (an update).
    """

    def __init__(self, model: nn.Module, counts: dict[str, int] | None = None):
        self.counts = {"forward": 0, "input_backward": 0, "weight_backward": 0, **(counts or {})}
        stem = next((m for m in model.modules() if list(m.parameters(recurse=False))), model)
        self._handle = stem.register_forward_hook(self._forward)
        self._stem, self._heard = stem, []
        for fast in (crafting_copy(model), forward_of(model)):
            if isinstance(fast, Folded | CompiledForward):
                fast.listeners.append(self._listen)
                self._heard.append(fast)

    def everywhere(self) -> dict[str, int]:
        """Return the counts of all processes together."""
        return dict(zip(self.counts, total(torch.tensor(list(self.counts.values()))).tolist(), strict=True))

    def load(self, counts: dict[str, int]) -> None:
        """Go on from saved counts; the main process holds what all had counted."""
        self.counts.update({name: count if is_main() else 0 for name, count in counts.items()})

    def close(self) -> None:
        """Stop counting."""
        self._handle.remove()
        for fast in self._heard:
            fast.listeners.remove(self._listen)

    def _forward(self, _stem: nn.Module, _inputs: Any, output: Tensor) -> None:
        if not torch.compiler.is_compiling():  # a compiled forward is heard at its end
            self._listen(output)

    def _listen(self, output: Tensor) -> None:
        self._add("forward", len(output))
        if output.requires_grad:
            trained = any(p.requires_grad for p in self._stem.parameters(recurse=False))
            kind = "weight_backward" if trained else "input_backward"
            output.register_hook(lambda grad: self._add(kind, len(grad)))

    def _add(self, kind: str, samples: int) -> None:
        self.counts[kind] += samples
