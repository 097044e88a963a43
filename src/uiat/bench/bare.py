"""The bare passes: each kind of pass on the network, alone, on the fastest path there is."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.crafting import Crafting, crafting, loss_logits
from uiat.precision import widen


@dataclass(frozen=True)
class Bare:
    """One kind of pass, and the state that the network is in meanwhile; to get it there is not part of the pass."""

    run: Callable[[nn.Module], object]
    within: Callable[[], AbstractContextManager[nn.Module]]

    def __call__(self) -> None:
        """Make one."""
        with self.within() as network:
            self.run(network)

    def repeat(self, network: nn.Module, times: int) -> None:
        """Make some in a row, on the network in its state, as an attack does."""
        for _ in range(times):
            self.run(network)


def bare_passes(
    model: nn.Module, x: Tensor, y: Tensor, lowered: Callable[[], AbstractContextManager[object]] = nullcontext
) -> dict[str, Bare]:
    """Return each kind of pass of `Need`, on a network in training mode.

    They are made in the precision of `lowered`, compiled where the network is. Crafting passes run through the
    network's folded copy where it has one; its folding is not part of them.
    """

    @contextmanager
    def crafted(mode: Crafting = "eval") -> Iterator[nn.Module]:
        with lowered(), crafting(model, mode) as network:
            yield network

    def forward(network: nn.Module) -> None:
        with torch.no_grad():
            network(x)

    def gradient(network: nn.Module) -> None:
        at = x.detach().requires_grad_()
        torch.autograd.grad(F.cross_entropy(widen(network(at)), y, reduction="sum"), at)

    def predict(network: nn.Module) -> None:
        with torch.no_grad(), lowered():
            loss_logits(network, x)

    def update(network: nn.Module) -> None:
        with lowered():
            loss = F.cross_entropy(widen(loss_logits(network, x)), y)
        loss.backward()
        network.zero_grad(set_to_none=True)

    def double(network: nn.Module) -> None:  # in float32 and not compiled, as GradAlign makes it
        at = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(network(at), y), at, create_graph=True)
        slope.square().sum().backward()
        network.zero_grad(set_to_none=True)

    def as_it_is() -> AbstractContextManager[nn.Module]:
        return nullcontext(model)

    return {
        "craft_forward": Bare(forward, crafted),
        "craft_gradient": Bare(gradient, crafted),
        "train_gradient": Bare(gradient, lambda: crafted("train")),
        "predict": Bare(predict, as_it_is),
        "update": Bare(update, as_it_is),
        "double": Bare(double, as_it_is),
    }
