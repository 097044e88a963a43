"""Bare passes: each kind of pass of a training step on its own, by the fastest implementation of this package."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.bench.setting import BenchSetting
from uiat.crafting import Crafting, crafting, loss_logits
from uiat.methods import SAT
from uiat.precision import to_float32


@dataclass(frozen=True)
class BarePass:
    """One kind of pass, and the context in which the network makes it; entering the context is not part of the pass."""

    run: Callable[[nn.Module], object]
    context: Callable[[], AbstractContextManager[nn.Module]]

    def __call__(self, network: nn.Module, times: int = 1) -> None:
        """Make this many passes in a row, as an attack does, on the network that `context` gave."""
        for _ in range(times):
            self.run(network)


def bare_passes(
    model: nn.Module, x: Tensor, y: Tensor, autocast: Callable[[], AbstractContextManager[object]] = nullcontext
) -> dict[str, BarePass]:
    """Return a pass of each kind on a network in training mode.

    The passes have the precision of `autocast` and are compiled if the network is. Crafting passes run through the
    network's folded copy if it has one; folding is not part of them.

    - `craft_forward`: a forward with running statistics, without a gradient: f(x) of the KL attack, the features of
      Eq. 4, HAT's helper.
    - `craft_gradient`: a forward with running statistics and its backward to the input: a step of an attack.
    - `train_gradient`: the same with batch statistics, as single-step methods craft.
    - `predict`: a forward with batch statistics, without a gradient: p, detached.
    - `update`: a forward with batch statistics and its backward to the weights.
    - `double`: a forward, a backward to the input, and the backward of both to the weights (GradAlign).
    """

    @contextmanager
    def crafted(mode: Crafting = "eval") -> Iterator[nn.Module]:
        with autocast(), crafting(model, mode) as network:
            yield network

    def forward(network: nn.Module) -> None:
        with torch.no_grad():
            network(x)

    def gradient(network: nn.Module) -> None:
        at = x.detach().requires_grad_()
        torch.autograd.grad(F.cross_entropy(to_float32(network(at)), y, reduction="sum"), at)

    def predict(network: nn.Module) -> None:
        with torch.no_grad(), autocast():
            loss_logits(network, x)

    def update(network: nn.Module) -> None:
        with autocast():
            loss = F.cross_entropy(to_float32(loss_logits(network, x)), y)
        loss.backward()
        network.zero_grad(set_to_none=True)

    def double(network: nn.Module) -> None:  # in float32 and not compiled, as in GradAlign
        at = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(network(at), y), at, create_graph=True)
        slope.square().sum().backward()
        network.zero_grad(set_to_none=True)

    return {
        "craft_forward": BarePass(forward, crafted),
        "craft_gradient": BarePass(gradient, crafted),
        "train_gradient": BarePass(gradient, lambda: crafted("train")),
        "predict": BarePass(predict, lambda: nullcontext(model)),
        "update": BarePass(update, lambda: nullcontext(model)),
        "double": BarePass(double, lambda: nullcontext(model)),
    }


def bare_passes_of(setting: BenchSetting) -> Mapping[str, BarePass]:
    """Return the bare passes of a new network, in the precision of the setting."""
    state = setting.build_state(SAT())
    state.passes.close()
    state.model.train()
    batch = setting.batch()
    return bare_passes(state.network, batch.x, batch.y, state.autocast)
