"""Counter of the forward and backward passes through a network: the cost of a method on any machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from uiat.distributed import all_reduce_sum, is_main
from uiat.models.fast import AcceleratedModel


class PassCounter:
    """Counts the samples sent forward and backward through a network.

    Hooks count the logits: of the network, and of the networks that an `AcceleratedModel` has made for it. Where the
    network's own call is bypassed (its `features` and `head` are called, or its plain forward), a hook on the first
    layer with parameters counts instead. A backward counts as an input-backward if all parameters were frozen in the
    forward (an attack), else as a weight-backward (an update).
    """

    def __init__(self, network: nn.Module):
        self.counts = {"forward": 0, "input_backward": 0, "weight_backward": 0}
        self._network, self._depth = network, 0
        counted = network.networks if isinstance(network, AcceleratedModel) else [network]
        first = next((m for m in network.modules() if list(m.parameters(recurse=False))), network)
        self._handles = [first.register_forward_hook(self._first_layer)] if first not in counted else []
        for watched in counted:
            self._handles.append(watched.register_forward_pre_hook(self._enter))
            self._handles.append(watched.register_forward_hook(self._leave, always_call=True))

    def everywhere(self) -> dict[str, int]:
        """Return the counts of all processes together."""
        return dict(zip(self.counts, all_reduce_sum(torch.tensor(list(self.counts.values()))).tolist(), strict=True))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the passes made within it, such as those of a validation."""
        counts = dict(self.counts)
        try:
            yield
        finally:
            self.counts.update(counts)

    def load(self, counts: dict[str, int]) -> None:
        """Resume from saved counts; the main process takes over those of all processes."""
        self.counts.update({name: count if is_main() else 0 for name, count in counts.items()})

    def close(self) -> None:
        """Stop counting."""
        for handle in self._handles:
            handle.remove()

    def _enter(self, _network: nn.Module, _inputs: Any) -> None:
        self._depth += 1

    def _leave(self, _network: nn.Module, _inputs: Any, output: Any) -> None:
        self._depth -= 1  # a compiled network may call the network itself
        logits = _flat(output)[-1]  # after the features, if a network returns both
        if self._depth == 0 and isinstance(logits, Tensor):  # None if the forward has raised an exception
            self._count(logits)

    def _first_layer(self, _layer: nn.Module, _inputs: Any, output: Any) -> None:
        if not torch.compiler.is_compiling() and self._depth == 0:
            self._count(next(part for part in _flat(output) if isinstance(part, Tensor)))

    def _count(self, output: Tensor) -> None:
        self._add("forward", len(output))
        if output.requires_grad:
            trained = any(parameter.requires_grad for parameter in self._network.parameters())
            kind = "weight_backward" if trained else "input_backward"
            output.register_hook(lambda grad: self._add(kind, len(grad)))

    def _add(self, kind: str, samples: int) -> None:
        self.counts[kind] += samples


def _flat(output: Any) -> list[Any]:
    """Return the outputs of a layer as a flat list: recurrent layers and attention return tuples."""
    return [leaf for part in output for leaf in _flat(part)] if isinstance(output, tuple | list) else [output]
