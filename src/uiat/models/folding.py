"""BatchNorm folded into the convolutions before it: the same function, with fewer passes over memory.

With running statistics, BatchNorm after a convolution is a scale and a shift of each channel, which the convolution
can do itself. While weights stand still (an evaluation, or the steps of one attack) that spares every BatchNorm.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple, cast
from weakref import ref

import torch
from torch import Tensor, fx, nn

from uiat.models.compiled import Compiled
from uiat.models.inplace import hooked, strides_of, use_inplace
from uiat.models.shared import Shared, Tracer, separate
from uiat.models.untouched import untouched


class Pair(NamedTuple):
    """A convolution, the BatchNorm that follows it, and the convolution that does the work of both."""

    conv: nn.Conv2d
    norm: nn.BatchNorm2d
    folded: nn.Conv2d


class Folded(nn.Module):
    """A classifier in eval mode with BatchNorm folded; it shares every other weight with the original, and no mode.

    `refresh` folds anew after the original's weights or statistics changed.
    """

    def __init__(
        self, original: nn.Module, whole: fx.GraphModule, split: fx.GraphModule | None, pairs: list[Pair], prefix: str
    ):
        super().__init__()
        self.whole, self.split = whole, split
        self._run: Callable[[Tensor], Tensor] = whole.forward
        self._run_split: Callable[[Tensor], tuple[Tensor, Tensor]] | None = split and split.forward
        self.listeners: list[Callable[[Tensor], None]] = []
        """Callbacks run on the logits of each forward; compiled code would not run hooks."""
        self._original = ref(original)
        self._pairs = pairs
        self._shared = [Shared(part, prefix) for part in (whole, split) if part is not None]
        self.refresh()

    def forward(self, x: Tensor) -> Tensor:
        """Return the original's logits, up to rounding."""
        return self._heard(self._run(x))

    def penultimate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the original's features and logits, from one forward."""
        assert self._run_split is not None, "no forward with features was traced"
        features, logits = self._run_split(x)
        return features, self._heard(logits)

    def compile(self) -> None:
        """Compile both forwards."""
        self._run = Compiled(self.whole.forward, self.whole, "the attack")
        if self.split is not None:
            self._run_split = Compiled(self.split.forward, self.split, "the inverse attack")

    def lay_out(self, memory: torch.memory_format) -> None:
        """Choose the memory layout of the folded convolutions."""
        for pair in self._pairs:
            pair.folded.to(memory_format=memory)  # type: ignore[call-overload]

    def _heard(self, logits: Tensor) -> Tensor:
        for listener in self.listeners:
            listener(logits)
        return logits

    @property
    def original(self) -> nn.Module:
        """The network that was folded."""
        model = self._original()
        assert model is not None, "a folded copy does not outlive its network"
        return model

    @property
    def folds(self) -> int:
        """How many BatchNorms are folded away."""
        return len(self._pairs)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the original's present weights and running statistics, and follow it to another device or type."""
        self._follow()
        for conv, norm, folded in self._pairs:
            assert norm.running_mean is not None
            assert norm.running_var is not None
            assert folded.bias is not None
            scale = torch.rsqrt(norm.running_var + norm.eps)
            scale = scale if norm.weight is None else scale * norm.weight
            shift = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
            torch.mul(conv.weight, scale[:, None, None, None], out=folded.weight.data)
            folded.bias.copy_(shift * scale if norm.bias is None else shift * scale + norm.bias)

    def _follow(self) -> None:
        """Read by name what may be other tensors by now."""
        original, conv, folded = self.original, self._pairs[0].conv, self._pairs[0].folded
        moves = (conv.weight.device, conv.weight.dtype) != (folded.weight.device, folded.weight.dtype)
        for shared in self._shared:
            shared.refresh(original)
            if moves:
                shared.move(original, folded.weight, conv.weight)
        for conv, _, folded in self._pairs:
            if (conv.weight.device, conv.weight.dtype) != (folded.weight.device, folded.weight.dtype):
                folded.to(conv.weight.device, conv.weight.dtype)


class Halves(nn.Module):
    """A network with `features` and `head`, as one forward that gives both of their results."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features (N, D) and the logits."""
        halves = cast(Any, self.model)
        f: Tensor = halves.features(x)
        return f.flatten(1), halves.head(f)


def fold(model: nn.Module, features: str | None = "") -> Folded | None:
    """Return the model with every foldable BatchNorm folded, or `None` where tracing finds none.

    A model whose forward depends on the values it computes, or does what tracing cannot follow, is not folded; nor is
    one with hooks of its own, which a trace does not see, or with noise of its own, which a trace would freeze.

    Args:
        model: the classifier; it stays as it is.
        features: also trace a forward that gives the features: the input of the layer of this name, or, for `None`,
            what the model's `features` gives to its `head`. Empty: no such forward is wanted.
    """
    if hooked(model):
        return None
    with untouched(model) as streams:
        try:
            model.eval()  # what the forward does with `self.training` is fixed by the trace
            root, tracer = Halves(model) if features is None else model, Tracer()
            traced = fx.GraphModule(root, tracer.trace(root))
        except Exception:  # anyone's own forward may raise anything when it meets a proxy
            return None
        if streams.moved():
            return None
    pairs = _replace(traced)
    if not pairs:
        return None
    separate(traced)
    whole, split = (_logits_of(traced), traced) if features is None else (traced, _split(traced, features))
    return Folded(model, whole, split, pairs, "model." if features is None else "").eval()


def _logits_of(traced: fx.GraphModule) -> fx.GraphModule:
    """Return a trace of features and logits as one of the logits alone, on the same layers."""
    graph = fx.Graph()
    output = graph.graph_copy(traced.graph, {})
    assert isinstance(output, tuple)
    graph.output(output[1])
    whole = fx.GraphModule(traced, graph)
    whole.graph.eliminate_dead_code()
    whole.recompile()
    return whole


def _split(traced: fx.GraphModule, layer: str) -> fx.GraphModule | None:
    """Return the trace with the input of a layer beside the logits; `None` where the trace has no call of it."""
    places: dict[fx.Node, fx.Node] = {}
    graph = fx.Graph()
    output = graph.graph_copy(traced.graph, places)
    calls = [node for node in traced.graph.nodes if node.op == "call_module" and node.target == layer and node.args]
    if not calls or not isinstance(calls[-1].args[0], fx.Node):
        return None
    call = places[calls[-1]]  # the last, should the layer run more than once
    with graph.inserting_before(call):
        kept = graph.call_method("clone", (call.args[0],))  # a layer may work in place
    graph.output((graph.call_method("flatten", (kept, 1)), output))
    return fx.GraphModule(traced, graph)


def _replace(traced: fx.GraphModule) -> list[Pair]:
    """Put one convolution in the place of every convolution that only a BatchNorm reads."""
    modules = dict(traced.named_modules())
    pairs: list[Pair] = []
    for node in list(traced.graph.nodes):
        norm = modules.get(str(node.target)) if node.op == "call_module" else None
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if not isinstance(norm, nn.BatchNorm2d) or norm.running_mean is None or source is None:
            continue
        conv = modules.get(str(source.target)) if source.op == "call_module" else None
        if (
            type(conv) is not nn.Conv2d
            or hooked(conv)
            or hooked(norm)
            or len(source.users) > 1
            or _calls(traced, source) > 1
            or _calls(traced, node) > 1
        ):
            continue
        folded, args = _empty_like(conv), source.args
        sliced = strides_of(source.args[0]) if source.args and isinstance(source.args[0], fx.Node) else None
        if sliced is not None and conv.kernel_size == (1, 1) and conv.stride == (1, 1) and conv.padding == (0, 0):
            # With frozen weights the convolution can take its stride itself (see `subsampled` in network.py).
            args, folded.stride = (sliced[0],), (sliced[1], sliced[1])
        name = f"folded_{len(pairs)}"
        traced.add_submodule(name, folded)
        with traced.graph.inserting_after(source):
            call = traced.graph.call_module(name, args, source.kwargs)
        node.replace_all_uses_with(call)
        traced.graph.erase_node(node)
        traced.graph.erase_node(source)
        pairs.append(Pair(conv, norm, folded))
    traced.graph.eliminate_dead_code()
    use_inplace(traced)
    return pairs


def _calls(traced: fx.GraphModule, node: fx.Node) -> int:
    """Count how often the forward runs a node's module: one that runs twice has two different neighbours."""
    return sum(other.op == "call_module" and other.target == node.target for other in traced.graph.nodes)


def _empty_like(conv: nn.Conv2d) -> nn.Conv2d:
    """Return a convolution of the same kind with a bias, to be filled; nothing is drawn for it."""
    empty = deepcopy(conv)
    empty.bias = nn.Parameter(conv.weight.new_empty(conv.out_channels))
    return empty.to(memory_format=torch.channels_last).requires_grad_(False)  # type: ignore[call-overload,no-any-return]
