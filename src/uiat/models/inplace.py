"""Fewer passes over memory in a folded trace: nothing is written that is only read once, and read at once."""

import operator
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

ADDITIONS = (operator.add, torch.add)
RELUS = (torch.relu, nn.functional.relu)


def use_inplace(traced: fx.GraphModule) -> None:
    """Add and rectify in place what a convolution has just made and nobody else reads.

    Neither a convolution nor an addition needs its own result for its gradient, and ReLU needs no more than its output.
    """
    for node in list(traced.graph.nodes):
        if node.op == "call_function" and node.target in ADDITIONS and len(node.args) == 2 and not node.kwargs:
            a, b = node.args
            if isinstance(a, fx.Node) and isinstance(b, fx.Node) and a is not b:
                if _made_for(traced, a):
                    _swap(traced, node, add_to_first, (a, b))
                elif _made_for(traced, b):
                    _swap(traced, node, add_to_second, (a, b))
        elif _is_relu(traced, node) and isinstance(node.args[0], fx.Node) and _made_for(traced, node.args[0]):
            _swap(traced, node, torch.relu_, (node.args[0],))
    traced.recompile()


def add_to_first(fresh: Any, other: Any) -> Any:
    """Return the sum, written over the first where it has the place: a sum may broadcast, or be of mere sizes."""
    return fresh.add_(other) if _alike(fresh, other) else fresh + other


def add_to_second(other: Any, fresh: Any) -> Any:
    """Return the sum, written over the second where it has the place."""
    return fresh.add_(other) if _alike(fresh, other) else other + fresh


def hooked(module: nn.Module) -> bool:
    """Whether calling the module does more than its forward."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind) for kind in kinds)


def strides_of(source: fx.Node) -> tuple[fx.Node, int] | None:
    """Return what a slice `x[:, :, ::s, ::s]` takes its positions from, and s."""
    if source.op != "call_function" or source.target is not operator.getitem or len(source.users) != 1:
        return None
    inner, places = source.args
    if not isinstance(inner, fx.Node) or not isinstance(places, tuple) or len(places) != 4:
        return None
    whole, steps = slice(None, None, None), {getattr(place, "step", None) for place in places[2:]}
    step = steps.pop()
    if steps or not isinstance(step, int) or step < 1:
        return None
    every = slice(None, None, step)
    return (inner, step) if tuple(places) == (whole, whole, every, every) else None


def _made_for(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node's result is new memory with a single reader."""
    if len(node.users) != 1:
        return False
    if node.op == "call_module":
        layer = traced.get_submodule(str(node.target))
        return type(layer) is nn.Conv2d and not hooked(layer)  # a hook may keep what it sees
    return node.op == "call_function" and node.target in (*ADDITIONS, add_to_first, add_to_second)


def _alike(fresh: Any, other: Any) -> bool:
    tensors = isinstance(fresh, Tensor) and isinstance(other, Tensor)
    return tensors and fresh.shape == other.shape and fresh.dtype == other.dtype


def _is_relu(traced: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        layer = traced.get_submodule(str(node.target))
        return type(layer) is nn.ReLU and not hooked(layer)
    return node.op == "call_function" and node.target in RELUS and len(node.args) == 1


def _swap(traced: fx.GraphModule, node: fx.Node, function: object, args: tuple[fx.Node, ...]) -> None:
    with traced.graph.inserting_after(node):
        call = traced.graph.call_function(cast("fx.node.Target", function), args)  # type: ignore[arg-type]
    node.replace_all_uses_with(call)
    traced.graph.erase_node(node)
