"""What all twins share: random draws, the modes of a model, the elementary losses one sample at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from math import floor
from typing import Any, Protocol

import torch
from torch import Tensor, nn

HP = dict[str, Any]
State = dict[str, Any]


class Draws(Protocol):
    """Where random numbers come from."""

    def uniform(self, purpose: str, like: Tensor) -> Tensor:
        """U(-1, 1) in the shape of `like`."""
        ...

    def normal(self, purpose: str, like: Tensor) -> Tensor:
        """N(0, 1) in the shape of `like`."""
        ...


@dataclass(frozen=True)
class Result:
    """A loss, and the value of each of its terms before it is weighted."""

    total: Tensor
    parts: dict[str, Tensor]


@dataclass(frozen=True)
class Step:
    """The arguments of a twin, under one name."""

    model: nn.Module
    x: Tensor
    y: Tensor
    index: Tensor
    epoch: int
    epochs: int
    state: State
    draws: Draws
    hp: HP


Twin = Callable[[nn.Module, Tensor, Tensor, Tensor, int, int, State, Draws, HP], Result]


def twin(method: Callable[[Step], Result]) -> Twin:
    """Give a method written for a Step the signature that all twins share."""

    @wraps(method)
    def run(
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        index: Tensor,
        epoch: int,
        epochs: int,
        state: State,
        draws: Draws,
        hp: HP,
    ) -> Result:
        return method(Step(model, x, y, index, epoch, epochs, state, draws, hp))

    return run


def new_state(z: Tensor) -> State:
    """z: the universal inverse perturbations (C, *shape); p: sample index -> its stored probabilities."""
    return {"z": z.detach().clone(), "p": {}}


def epoch_of(when: float, epochs: int) -> int:
    """T and T': an epoch (>= 1) or a fraction of the run, rounded down exactly; epochs count from 1."""
    return int(when) if when >= 1 else max(1, floor(Fraction(str(when)) * epochs))


@contextmanager
def crafting(model: nn.Module, mode: str) -> Iterator[None]:
    """Use running statistics while crafting ("eval"), or leave the model in the mode it is in ("train").

    With "batch" it stays in its mode, too, but the running statistics are put back afterwards.
    """
    if mode not in ("eval", "train", "batch"):
        raise ValueError(mode)
    before = [(module, module.training) for module in model.modules()]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    if mode == "eval":
        model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
        if mode == "batch":
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])


def features(model: nn.Module, x: Tensor) -> Tensor:
    net: Any = model
    out: Tensor = net.features(x)
    return out


def head(model: nn.Module, f: Tensor) -> Tensor:
    net: Any = model
    out: Tensor = net.head(f)
    return out


def logits(model: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = model(x)
    return out


def cross_entropy(logit: Tensor, y: Tensor, smoothing: float = 0.0) -> list[Tensor]:
    """-log p_y, for each sample; with smoothing, that share of it is the mean over all classes instead.

    For a soft label, a distribution over the classes, -log p_y is its mean under that distribution.
    """
    losses = []
    for j in range(len(y)):
        log_p = logit[j].log_softmax(0)
        right = log_p[int(y[j])] if y.ndim == 1 else sum(y[j, k] * log_p[k] for k in range(len(log_p)))
        losses.append(-(1 - smoothing) * right - smoothing * log_p.mean())
    return losses


def kl_logits(logit_p: Tensor, logit_q: Tensor) -> list[Tensor]:
    """KL(p || q) = sum_k p_k (log p_k - log q_k), for each sample, both given as logits."""
    losses = []
    for j in range(len(logit_p)):
        log_p, log_q = logit_p[j].log_softmax(0), logit_q[j].log_softmax(0)
        losses.append((log_p.exp() * (log_p - log_q)).sum())
    return losses


def kl_probabilities(p: Tensor, logit_q: Tensor) -> list[Tensor]:
    """KL(p || q), for each sample, with p given as plain probabilities (0 log 0 = 0)."""
    losses = []
    for j in range(len(p)):
        log_q = logit_q[j].log_softmax(0)
        losses.append((torch.xlogy(p[j], p[j]) - p[j] * log_q).sum())
    return losses


def margin(logit: Tensor, y: Tensor) -> list[Tensor]:
    """max_{k != y} logit_k - logit_y, for each sample."""
    losses = []
    for j in range(len(y)):
        others = [logit[j, k] for k in range(logit.shape[1]) if k != int(y[j])]
        losses.append(torch.stack(others).max() - logit[j, int(y[j])])
    return losses


def total(losses: list[Tensor]) -> Tensor:
    return torch.stack(losses).sum()


def mean(losses: list[Tensor]) -> Tensor:
    return torch.stack(losses).mean()


def gradient(loss: Tensor, at: Tensor, create_graph: bool = False) -> Tensor:
    """d loss / d at; the gradients of parameters are neither computed nor touched."""
    return torch.autograd.grad(loss, at, create_graph=create_graph)[0]
