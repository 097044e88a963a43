"""The bare passes: each kind of pass on the network, alone, on the fastest path there is."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.crafting import crafting

Pass = Callable[[], object]


def bare_passes(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Pass]:
    """Return a function for each kind of pass of `Need`, on a network in training mode.

    Crafting passes run through the network's folded copy where it has one; its folding is not part of them.
    """
    with crafting(model) as network:
        fast = network

    def craft_forward() -> None:
        with torch.no_grad():
            fast(x)

    def craft_gradient() -> None:
        _input_gradient(fast, x, y)

    def train_gradient() -> None:
        _input_gradient(model, x, y)

    def predict() -> None:
        with torch.no_grad():
            model(x)

    def update() -> None:
        F.cross_entropy(model(x), y).backward()
        model.zero_grad(set_to_none=True)

    def double() -> None:
        at = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(at), y), at, create_graph=True)
        gradient.square().sum().backward()
        model.zero_grad(set_to_none=True)

    return {
        "craft_forward": _within(model, craft_forward, eval_mode=True),
        "craft_gradient": _within(model, craft_gradient, eval_mode=True),
        "train_gradient": _within(model, train_gradient, eval_mode=False),
        "predict": predict,
        "update": update,
        "double": double,
    }


def _within(model: nn.Module, run: Pass, *, eval_mode: bool) -> Pass:
    """Run with frozen parameters; where the fast network is the model itself, in its evaluation mode."""

    def frozen() -> None:
        trained = [p for p in model.parameters() if p.requires_grad]
        training = model.training
        for parameter in trained:
            parameter.requires_grad_(False)
        model.train(training and not eval_mode)
        run()
        model.train(training)
        for parameter in trained:
            parameter.requires_grad_(True)

    return frozen


def _input_gradient(network: nn.Module, x: Tensor, y: Tensor) -> None:
    at = x.detach().requires_grad_()
    torch.autograd.grad(F.cross_entropy(network(at), y, reduction="sum"), at)
