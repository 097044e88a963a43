"""What a step is compared with: bare passes of the network, and literal steps as papers and public code have them.

A bare pass is one kind of pass on the network, alone, on the fastest path there is. A literal step saves nothing: plain
memory layout, no folding, parameters not frozen, and the clean prediction made anew at every step of the attack;
TRADES' authors make it anew for the robust term of the loss, too.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.crafting import Crafting, crafting, loss_logits
from uiat.precision import to_float32


@dataclass(frozen=True)
class BarePass:
    """One kind of pass, and the state that the network needs for it; entering that state is not part of the pass."""

    run: Callable[[nn.Module], object]
    within: Callable[[], AbstractContextManager[nn.Module]]

    def __call__(self, network: nn.Module, times: int = 1) -> None:
        """Make this many passes in a row, as an attack does, on a network that is `within` its state already."""
        for _ in range(times):
            self.run(network)


Step = Callable[[Tensor, Tensor], None]
"""A training step on (x, y)."""
EPS, ALPHA, STEPS = 8 / 255, 2 / 255, 10


def bare_passes(
    model: nn.Module, x: Tensor, y: Tensor, autocast: Callable[[], AbstractContextManager[object]] = nullcontext
) -> dict[str, BarePass]:
    """Return each kind of pass of `Need`, on a network in training mode.

    They have the precision of `autocast` and are compiled where the network is. Crafting passes run through the
    network's folded copy where it has one; folding is not part of them.
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

    def double(network: nn.Module) -> None:  # in float32 and not compiled, as GradAlign makes it
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


def literal_natural(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """Return a step on CE(f(x), y)."""

    def step(x: Tensor, y: Tensor) -> None:
        model.train()
        _descend(optimizer, F.cross_entropy(model(x), y))

    return step


def literal_trades(model: nn.Module, optimizer: torch.optim.Optimizer, omega: float = 6.0) -> Step:
    """Return a step on CE(f(x), y) + ω·KL(f(x) ‖ f(x̂))."""

    def step(x: Tensor, y: Tensor) -> None:
        x_adv = _attack(model, x)
        model.train()
        natural = F.cross_entropy(model(x), y)
        robust = _kl(model(x_adv), model(x)) / len(x)
        _descend(optimizer, natural + omega * robust)

    return step


def literal_hat(model: nn.Module, optimizer: torch.optim.Optimizer, helper: nn.Module) -> Step:
    """Return a step on CE(f(x), y) + 2.5·KL(f(x) ‖ f(x̂)) + 0.5·CE(f(x + 2(x̂ − x)), helper(x̂))."""
    helper.eval()

    def step(x: Tensor, y: Tensor) -> None:
        x_adv = _attack(model, x)
        model.train()
        beyond = x + 2 * (x_adv - x)
        with torch.no_grad():
            label = helper(x_adv).argmax(dim=1)
        clean = model(x)
        loss = F.cross_entropy(clean, y) + 2.5 * _kl(model(x_adv), clean) / len(x)
        _descend(optimizer, loss + 0.5 * F.cross_entropy(model(beyond), label))

    return step


def _attack(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    x_adv = x.detach() + 0.001 * torch.randn_like(x)
    for _ in range(STEPS):
        x_adv.requires_grad_()
        loss = _kl(model(x_adv), model(x))
        (gradient,) = torch.autograd.grad(loss, [x_adv])
        x_adv = x_adv.detach() + ALPHA * torch.sign(gradient.detach())
        x_adv = torch.min(torch.max(x_adv, x - EPS), x + EPS)
        x_adv = torch.clamp(x_adv, 0.0, 1.0)
    return x_adv


def _kl(adversarial: Tensor, clean: Tensor) -> Tensor:
    """Return Σ KL(f(x) ‖ f(x̂)) over the batch."""
    return F.kl_div(F.log_softmax(adversarial, dim=1), F.softmax(clean, dim=1), reduction="sum")


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
