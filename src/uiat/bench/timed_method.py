"""Methods and literal references as sequences of steps to be timed, one for each phase of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.bench.bare_passes import BarePass
from uiat.bench.pass_count import count_passes
from uiat.bench.setting import LR, BenchSetting
from uiat.engine.state import State
from uiat.methods import METHODS, MethodConfig


@dataclass(frozen=True)
class Phase:
    """A part of a run in which all steps cost the same."""

    share: float
    """Its share of the run's epochs."""
    step: Callable[[], object]
    counts: Mapping[str, float] = field(default_factory=dict)
    """Passes of a step in each direction, in batches."""
    kinds: Mapping[str, float] = field(default_factory=dict)
    """Passes of a step of each kind, in batches."""


@dataclass(frozen=True)
class TimedMethod:
    """A method, or a reference, with the phases of its run."""

    name: str
    phases: tuple[Phase, ...]
    state: State | None = None
    bare: Mapping[str, BarePass] = field(default_factory=dict)
    """Bare passes to time beside its steps; empty: only the steps are timed."""


def timed_method(
    name: str, setting: BenchSetting, method: MethodConfig | None = None, bare: Mapping[str, BarePass] | None = None
) -> TimedMethod:
    """Return the phases of a method; without a configuration, of the registered method of that name."""
    method = METHODS[name] if method is None else method
    state = setting.build_state(method, setting.build_helper(method))
    phases = [
        Phase(passes.share, setting.make_step(name, state, passes.clock), passes.counts, passes.kinds)
        for passes in count_passes(method, setting.train, setting.spec)
    ]
    return TimedMethod(name, tuple(phases), state, bare or {})


def literal_references(setting: BenchSetting) -> list[TimedMethod]:
    """Return literal steps of natural training, TRADES and HAT: default memory format, float32, not compiled."""
    batch, references = setting.batch(), []
    for name, loss in LITERAL_LOSSES.items():
        model, helper = (setting.model.build(setting.spec).to(setting.device) for _ in range(2))
        optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.9, nesterov=True, weight_decay=5e-4)
        step = partial(literal_step, loss, model, helper.eval(), optimizer, batch.x, batch.y)
        references.append(TimedMethod(f"literal {name}", (Phase(1.0, step),)))
    return references


LiteralLoss = Callable[[nn.Module, nn.Module, Tensor, Tensor], Tensor]
"""(model in training mode, helper in eval mode, x, y) → the loss."""
EPS, ALPHA, ATTACK_STEPS = 8 / 255, 2 / 255, 10


def literal_step(
    loss: LiteralLoss, model: nn.Module, helper: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor
) -> None:
    """Make a training step on a batch."""
    value = loss(model.train(), helper, x, y)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()


def _natural(model: nn.Module, helper: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return CE(f(x), y)."""
    return F.cross_entropy(model(x), y)


def _trades(model: nn.Module, helper: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return CE(f(x), y) + 6·KL(f(x) ‖ f(x̂))."""
    x_adv = _attack(model, x)
    natural = F.cross_entropy(model(x), y)
    return natural + 6.0 * _kl(model(x_adv), model(x)) / len(x)


def _hat(model: nn.Module, helper: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return CE(f(x), y) + 2.5·KL(f(x) ‖ f(x̂)) + 0.5·CE(f(x + 2(x̂ − x)), helper(x̂))."""
    x_adv = _attack(model, x)
    with torch.no_grad():
        label = helper(x_adv).argmax(dim=1)
    clean = model(x)
    loss = F.cross_entropy(clean, y) + 2.5 * _kl(model(x_adv), clean) / len(x)
    return loss + 0.5 * F.cross_entropy(model(x + 2 * (x_adv - x)), label)


LITERAL_LOSSES: dict[str, LiteralLoss] = {"natural": _natural, "trades": _trades, "hat": _hat}


def _attack(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    x_adv = x.detach() + 0.001 * torch.randn_like(x)
    for _ in range(ATTACK_STEPS):
        x_adv.requires_grad_()
        loss = _kl(model(x_adv), model(x))
        (gradient,) = torch.autograd.grad(loss, [x_adv])
        x_adv = x_adv.detach() + ALPHA * torch.sign(gradient.detach())
        x_adv = torch.min(torch.max(x_adv, x - EPS), x + EPS)
        x_adv = torch.clamp(x_adv, 0.0, 1.0)
    model.train()
    return x_adv


def _kl(adversarial: Tensor, clean: Tensor) -> Tensor:
    """Return Σ KL(f(x) ‖ f(x̂)) over the batch."""
    return F.kl_div(F.log_softmax(adversarial, dim=1), F.softmax(clean, dim=1), reduction="sum")
