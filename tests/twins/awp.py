"""Twin of adversarial weight perturbation (Wu et al., 2020): a whole update, with a copy of the network for the ascent.

Each outer problem is a function that crafts and then returns the loss as a function of a network. In it, p of UIAT is a
constant of the batch, taken at the network's own weights, unless its gradient flows.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .basics import Step, cross_entropy, kl_logits, kl_probabilities, logits, mean
from .inverse import momentum, one_off, universal_prediction, update_universal
from .methods import attack

Loss = Callable[[nn.Module, dict[str, object]], Tensor]


def sat(s: Step) -> Loss:
    x_hat = attack(s, "ce")
    return lambda model, state: mean(cross_entropy(logits(model, x_hat), s.y))


def trades(s: Step) -> Loss:
    x_hat = attack(s, "kl")

    def loss(model: nn.Module, state: dict[str, object]) -> Tensor:
        out = logits(model, s.x)
        out_hat = logits(model, x_hat)
        lam: float = s.hp["lam"]
        return mean(cross_entropy(out, s.y)) + lam * mean(kl_logits(out, out_hat))

    return loss


def uiat(s: Step) -> Loss:
    x_hat = attack(s, "ce")
    update_universal(s.model, s.x, s.y, x_hat, s.state, s.hp)

    def take(model: nn.Module, state: dict[str, object]) -> Tensor:
        fresh = universal_prediction(model, s.x, s.y, state, s.hp)
        return momentum(fresh, s.index, s.epoch, s.epochs, state, s.hp)

    constant = take(s.model, s.state) if s.hp["detach_target"] else None
    return _pulled(s, x_hat, lambda model, state: take(model, state) if constant is None else constant)


def uiat_one_off(s: Step) -> Loss:
    x_hat = attack(s, "ce")
    p = one_off(s, x_hat)
    return _pulled(s, x_hat, lambda model, state: p)


def _pulled(s: Step, x_hat: Tensor, take: Loss) -> Loss:
    def loss(model: nn.Module, state: dict[str, object]) -> Tensor:
        p = take(model, state)
        out = logits(model, x_hat)
        lam: float = s.hp["lam"]
        return mean(cross_entropy(out, s.y)) + lam * mean(kl_probabilities(p, out))

    return loss


OUTER: dict[str, Callable[[Step], Loss]] = {
    "sat": sat,
    "trades": trades,
    "uiat": uiat,
    "uiat_one_off": uiat_one_off,
}


def update(s: Step, outer: Callable[[Step], Loss], gamma: float, lr: float, decay: float) -> Tensor:
    """One step: v maximises, w ← w − lr·(∇L(w + v) + decay·w). Returns the loss at w + v."""
    loss = outer(s)
    proxy = copy.deepcopy(s.model)
    names = [name for name, _ in proxy.named_parameters()]
    found = torch.autograd.grad(loss(proxy, copy.deepcopy(s.state)), list(proxy.parameters()))
    own = {name: parameter.detach().clone() for name, parameter in s.model.named_parameters()}
    with torch.no_grad():
        for name, g in zip(names, found, strict=True):
            if g.dim() > 1 and bool(g.abs().max() > 0):
                v = gamma * own[name].pow(2).sum().sqrt() * g / g.pow(2).sum().sqrt()
                s.model.get_parameter(name).copy_(own[name] + v)
    value = loss(s.model, s.state)
    gradients = torch.autograd.grad(value, list(s.model.parameters()))
    with torch.no_grad():
        for name, g in zip(names, gradients, strict=True):
            s.model.get_parameter(name).copy_(own[name] - lr * (g + decay * own[name]))
    return value.detach()
