"""What a trace reads by name, apart from its layers: parameters, buffers and constants."""

import torch
from torch import Tensor, fx, nn


class Tracer(fx.Tracer):
    """Follows buffers as it does parameters: what a forward computes from them is no constant."""

    proxy_buffer_attributes = True


class Shared:
    """The tensors that a trace reads by name: the original's, which may be others by now, and its own constants."""

    def __init__(self, traced: fx.GraphModule, prefix: str):
        targets = {str(node.target) for node in traced.graph.nodes if node.op == "get_attr"}
        self._places: list[tuple[nn.Module, str, str]] = []
        for target in sorted(targets):
            parent, _, name = target.rpartition(".")
            self._places.append((traced.get_submodule(parent), name, target.removeprefix(prefix)))

    def refresh(self, original: nn.Module) -> None:
        """Read every tensor again that the original has."""
        for holder, name, target in self._places:
            tensor = _find(original, target)
            if tensor is not None and tensor is not getattr(holder, name):
                _put(holder, name, tensor)

    def move(self, original: nn.Module, before: Tensor, after: Tensor) -> None:
        """Take the constants along from the device and type of one tensor to those of another."""
        for holder, name, target in self._places:
            if _find(original, target) is None:
                constant: Tensor = getattr(holder, name)
                dtype = after.dtype if constant.dtype == before.dtype else constant.dtype
                _put(holder, name, constant.to(after.device, dtype))


def _find(original: nn.Module, target: str) -> Tensor | None:
    found: object = original
    for name in target.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, Tensor) else None


def _put(holder: nn.Module, name: str, tensor: Tensor) -> None:
    for kind in (holder._parameters, holder._buffers, holder.__dict__):
        kind.pop(name, None)
    if isinstance(tensor, torch.nn.Parameter):
        holder._parameters[name] = tensor
    else:
        holder._buffers[name] = tensor
