"""What a trace has in common with its network: tensors that it reads by name, and the weights of its layers."""

from collections import OrderedDict

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


def separate(traced: fx.GraphModule) -> None:
    """Give the trace layers of its own on the same weights: the original's `train()` must not reach them."""
    traced.delete_all_unused_submodules()
    for target in {str(node.target) for node in traced.graph.nodes if node.op == "call_module"}:
        parent, _, name = target.rpartition(".")
        setattr(traced.get_submodule(parent), name, _alias(traced.get_submodule(target)))


def _alias(module: nn.Module) -> nn.Module:
    """Copy a module but for its parameters and buffers, which are the original's for ever."""
    alias: nn.Module = module.__class__.__new__(module.__class__)  # `copy` is forbidden to parametrised layers
    alias.__dict__.update(module.__dict__)
    for hooks in [name for name in module.__dict__ if name.endswith("_hooks")]:
        alias.__dict__[hooks] = OrderedDict(module.__dict__[hooks])  # those of now, and none that come later
    alias._modules = {name: child and _alias(child) for name, child in module._modules.items()}
    return alias


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
