"""Counts the passes through a network as they happen: the honest unit of what a method costs."""

from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from uiat.crafting import crafting_copy, forward_of
from uiat.distributed import is_main, total
from uiat.models.compiled import CompiledForward
from uiat.models.folding import Folded


class PassCounter:
    """Samples sent forward and backward through a network since counting began.

    It listens to the logits: of the network, and of the folded copy and the compiled forward, which must be there
    before the counter (see `uiat.models.fast`). Where the network's own call is passed by (its `features` and `head`
    are called, or its plain forward), it listens at the first layer with parameters instead. A backward counts as an
    input-backward when all parameters were frozen on the way forward (an attack), else as a weight-backward (update).
    """

    def __init__(self, model: nn.Module, counts: dict[str, int] | None = None):
        self.counts = {"forward": 0, "input_backward": 0, "weight_backward": 0, **(counts or {})}
        stem = next((m for m in model.modules() if list(m.parameters(recurse=False))), model)
        self._model, self._within = ref(model), False  # the copy knows the counter, and must not keep the model alive
        self._handles = [
            model.register_forward_pre_hook(self._enter),
            model.register_forward_hook(self._leave, always_call=True),
        ]
        if stem is not model:
            self._handles.append(stem.register_forward_hook(self._first_layer))
        self._fast_forwards: list[Folded | CompiledForward] = []
        for fast in (crafting_copy(model), forward_of(model)):
            if isinstance(fast, Folded | CompiledForward):
                fast.listeners.append(self._listen)
                self._fast_forwards.append(fast)

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
        for fast in self._fast_forwards:
            fast.listeners.remove(self._listen)

    def _enter(self, _model: nn.Module, _inputs: Any) -> None:
        self._within = True

    def _leave(self, _model: nn.Module, _inputs: Any, output: Any) -> None:
        self._within = False
        if isinstance(output, Tensor):  # None where the forward has raised something
            self._listen(output)

    def _first_layer(self, _stem: nn.Module, _inputs: Any, output: Any) -> None:
        # A compiled forward is heard at its end, and so is a call of the network.
        if not torch.compiler.is_compiling() and not self._within:
            self._listen(next(part for part in _flat(output) if isinstance(part, Tensor)))

    def _listen(self, output: Tensor) -> None:
        self._add("forward", len(output))
        if output.requires_grad:
            model = self._model()
            trained = model is not None and any(parameter.requires_grad for parameter in model.parameters())
            kind = "weight_backward" if trained else "input_backward"
            output.register_hook(lambda grad: self._add(kind, len(grad)))

    def _add(self, kind: str, samples: int) -> None:
        self.counts[kind] += samples


def _flat(output: Any) -> list[Any]:
    """Return the parts of what a layer gave: recurrent layers and attention give tuples."""
    return [leaf for part in output for leaf in _flat(part)] if isinstance(output, tuple | list) else [output]
