"""BatchNorm folded into the convolutions before it: the same function, with fewer passes over memory.

With running statistics, BatchNorm after a convolution is a scale and a shift of each channel, which the convolution
can do itself. While the weights are fixed (in an evaluation, or during an attack) BatchNorm then costs nothing.
"""

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx, nn

from uiat.crafting import AcceleratedNetwork
from uiat.models.features import Features
from uiat.models.probe import agree, close, full_precision, logits_and_gradients, untouched

ADDITIONS = (operator.add, torch.add)
RELUS = (torch.relu, nn.functional.relu)
CALLS = 3
"""Runs of the model in a comparison: a random forward, or one that counts its calls, gives different results."""


class Pair(NamedTuple):
    """A convolution, the BatchNorm that follows it, and the convolution of the copy that replaces both."""

    conv: nn.Conv2d
    norm: nn.BatchNorm2d
    folded: nn.Conv2d


class AcceleratedCopy(AcceleratedNetwork):
    """Computes a model's eval-mode outputs, up to rounding, with BatchNorm folded, compiled, or both.

    It shares the model's tensors, except those of folded convolutions; the model's mode has no effect on it.

    Args:
        model: the model.
        run: the network that computes the logits, or a pair of features and logits.
        features: extracts features from the model if `run` does not return them.
        gives_features: whether `run` returns features.
        layers: pairs of a layer of `run` and the layer of the model with which it shares tensors.
        pairs: the folded layers.
    """

    def __init__(
        self,
        model: nn.Module,
        run: nn.Module,
        features: Callable[[nn.Module, Tensor], tuple[Tensor, Tensor]],
        *,
        gives_features: bool = False,
        layers: Sequence[tuple[nn.Module, nn.Module]] = (),
        pairs: Sequence[Pair] = (),
    ):
        super().__init__(model, features)
        self.run, self.gives_features, self.pairs, self._layers = run, gives_features, pairs, layers

    def forward(self, x: Tensor, *, with_features: bool = False) -> Any:
        """Return the model's logits, or its features and its logits."""
        # Calling a traced network, unlike calling its forward, prints a traceback if it fails.
        output = self.run.forward(x) if isinstance(self.run, fx.GraphModule) else self.run(x)
        return output[1] if self.gives_features and not with_features else output

    def penultimate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's features (N, D) and logits of x, from one forward."""
        return self(x, with_features=True) if self.gives_features else super().penultimate(x)

    @torch.no_grad()
    def refresh(self) -> bool:
        """Update to the model's current weights and running statistics.

        Return whether that was possible: a model that was moved to another device or data type is not followed.
        """
        for ours, theirs in self._layers:
            tables: Any = ((ours._parameters, theirs._parameters), (ours._buffers, theirs._buffers))
            for copied, source in tables:
                for name in copied:
                    if name in source and copied[name] is not source[name]:
                        copied[name] = source[name]
        for conv, norm, folded in cast(Any, self.pairs):
            if (conv.weight.device, conv.weight.dtype) != (folded.weight.device, folded.weight.dtype):
                return False
            scale = torch.rsqrt(norm.running_var + norm.eps)
            scale = scale if norm.weight is None else scale * norm.weight
            shift = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
            torch.mul(conv.weight, scale[:, None, None, None], out=folded.weight.data)
            folded.bias.copy_(shift * scale if norm.bias is None else shift * scale + norm.bias)
        return True


def folded_copy(
    model: nn.Module, x: Tensor, features: Features, layer: str = "", *, channels_last: bool = True
) -> AcceleratedCopy | None:
    """Return a copy of the model with every foldable BatchNorm folded, in a memory format it can run in.

    Return `None` if there is nothing to fold, or if the copy does not compute the same on x: logits and input gradients
    are compared, and the model is run more than once. A model is not folded if its forward depends on the values it
    computes, draws random numbers or reads tensors that are neither parameters nor buffers, or if it has hooks, which a
    trace does not see. The model and all random streams remain unchanged.

    Args:
        model: the classifier.
        x: two or more samples.
        features: extracts the model's features.
        layer: the layer whose input is the features; empty: they are extracted from the model.
        channels_last: whether the copy's convolutions may be in that memory format; it is tried first.
    """
    if any(map(_hooked, model.modules())):
        return None
    with untouched(model) as streams, full_precision(x.device):
        try:
            copy = _copy(model.eval().requires_grad_(False), features, layer)
        except Exception:  # a custom forward may raise anything when it is traced
            return None
        for memory in (torch.channels_last, torch.contiguous_format)[0 if channels_last else 1 :]:
            if copy is not None and _same(model, copy, x, memory) and not streams.moved():
                return copy
    return None


def _hooked(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)


def _same(model: nn.Module, copy: AcceleratedCopy, x: Tensor, memory: torch.memory_format) -> bool:
    """Return whether the copy, with its folded convolutions in this memory format, computes the same as the model."""
    for pair in copy.pairs:
        pair.folded.to(memory_format=memory)  # type: ignore[call-overload]
    copy.refresh()
    try:
        expected = logits_and_gradients(model, x)
        with torch.no_grad():
            again = [*(model(x) for _ in range(CALLS - 1)), copy(x)]
        return agree(logits_and_gradients(copy, x), expected) and all(close(other, expected[0]) for other in again)
    except Exception:  # a memory format, or an operation in place, with which the forward fails
        return False


class Tracer(fx.Tracer):
    """Traces buffers like parameters, so that values computed from them are not constants."""

    proxy_buffer_attributes = True


def _copy(model: nn.Module, features: Features, layer: str) -> AcceleratedCopy | None:
    """Return a folded copy of the model, or `None` if a trace finds nothing to fold."""
    modules, copied = dict(model.named_modules()), deepcopy(model)
    traced = fx.GraphModule(copied, Tracer().trace(copied))
    gives_features = _give_features(traced.graph, layer)
    pairs = _fold_pairs(traced, modules)
    if not pairs or any(_is_plain_tensor(node, modules) for node in traced.graph.nodes):
        return None
    traced.graph.eliminate_dead_code()
    _use_inplace(traced)
    traced.delete_all_unused_submodules()
    traced.recompile()
    folded = [pair.folded for pair in pairs]
    layers = [(ours, modules[name]) for name, ours in traced.named_modules() if name in modules and ours not in folded]
    return AcceleratedCopy(model, traced, features, gives_features=gives_features, layers=layers, pairs=pairs).eval()


def _is_plain_tensor(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Return whether a node reads an attribute of the model that is neither a parameter nor a buffer."""
    holder, _, name = str(node.target).rpartition(".")
    return node.op == "get_attr" and holder in modules and name in vars(modules[holder])


def _give_features(graph: fx.Graph, layer: str) -> bool:
    """Make a trace return the input of a layer with the logits; return whether it calls the layer."""
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == layer and node.args]
    if not calls or not isinstance(calls[-1].args[0], fx.Node):
        return False
    with graph.inserting_before(calls[-1]):  # the last, if the layer runs more than once
        kept = graph.call_method("clone", (calls[-1].args[0],))  # a layer may work in place
        flat = graph.call_method("flatten", (kept, 1))
    (output,) = (node for node in graph.nodes if node.op == "output")
    output.args = ((flat, output.args[0]),)
    return True


def _fold_pairs(traced: fx.GraphModule, modules: Mapping[str, nn.Module]) -> list[Pair]:
    """Replace each convolution whose only user is a BatchNorm, and that BatchNorm, by one convolution."""
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    pairs = []
    for node in list(traced.graph.nodes):
        source = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(source, fx.Node) or source.op != "call_module" or len(source.users) > 1:
            continue
        conv, norm = modules[str(source.target)], modules[str(node.target)]
        if type(conv) is not nn.Conv2d or not isinstance(norm, nn.BatchNorm2d) or norm.running_mean is None:
            continue
        if calls[source.target] > 1 or calls[node.target] > 1:  # a layer that runs twice has two different neighbours
            continue
        folded = cast(nn.Conv2d, traced.get_submodule(str(source.target)))
        folded.weight = nn.Parameter(torch.empty_like(conv.weight), requires_grad=False)  # the old may be shared
        folded.bias = nn.Parameter(conv.weight.new_empty(conv.out_channels), requires_grad=False)
        _take_stride(source, folded)
        node.replace_all_uses_with(source)
        traced.graph.erase_node(node)
        pairs.append(Pair(conv, norm, folded))
    return pairs


def _take_stride(call: fx.Node, conv: nn.Conv2d) -> None:
    """Give a 1×1 convolution that reads `x[:, :, ::s, ::s]` the stride s and the input x.

    With frozen weights that is safe and faster (see `subsampled`, where the bundled networks avoid it in training).
    """
    sliced = call.args[0] if call.args else None
    if (conv.kernel_size, conv.stride, conv.padding) != ((1, 1), (1, 1), (0, 0)) or not isinstance(sliced, fx.Node):
        return
    if sliced.target is not operator.getitem or len(sliced.users) > 1:
        return
    x, where = sliced.args
    step = where[-1].step if isinstance(where, tuple) and isinstance(where[-1], slice) else None
    every = slice(None, None, step)
    if isinstance(step, int) and step > 0 and where == (slice(None), slice(None), every, every):
        call.args, conv.stride = (x,), (step, step)


def _use_inplace(traced: fx.GraphModule) -> None:
    """Use in-place additions and ReLUs on results of convolutions and additions that nothing else reads.

    Neither a convolution nor an addition needs its own result for its gradient, and ReLU needs no more than its output.
    """
    made: set[fx.Node] = set()
    for node in traced.graph.nodes:
        layer = traced.get_submodule(str(node.target)) if node.op == "call_module" else None
        inputs = [argument for argument in node.args if isinstance(argument, fx.Node)]
        free = [argument for argument in inputs if argument in made and len(argument.users) == 1]
        if type(layer) is nn.Conv2d:
            made.add(node)
        elif node.target in ADDITIONS and len(set(inputs)) == 2 and not node.kwargs:
            made.add(node)
            if free:
                node.target, node.args = add_into, (free[0], inputs[inputs[0] is free[0]])
        elif free and len(node.args) == 1 and (type(layer) is nn.ReLU or node.target in RELUS):
            node.op, node.target, node.args, node.kwargs = "call_function", torch.relu_, (free[0],), {}


def add_into(fresh: Any, other: Any) -> Any:
    """Return the sum, written into `fresh` if shape and type allow: a sum may broadcast, or be of plain numbers."""
    tensors = isinstance(fresh, Tensor) and isinstance(other, Tensor)
    return fresh.add_(other) if tensors and (fresh.shape, fresh.dtype) == (other.shape, other.dtype) else fresh + other
