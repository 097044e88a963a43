"""Methods and literal references as sequences of steps to be timed, one for each phase of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch

from uiat.bench.bare_passes import BarePass
from uiat.bench.literal_steps import LiteralStep, literal_hat, literal_natural, literal_trades
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
    steps: dict[str, Callable[..., LiteralStep]] = {
        "natural": literal_natural,
        "trades": literal_trades,
        "hat": literal_hat,
    }
    batch, references = setting.batch(), []
    for name, literal in steps.items():
        model, *helper = (setting.model.build(setting.spec).to(setting.device) for _ in range(1 + (name == "hat")))
        optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.9, nesterov=True, weight_decay=5e-4)
        step = partial(literal(model, optimizer, *helper), batch.x, batch.y)
        references.append(TimedMethod(f"literal {name}", (Phase(1.0, step),)))
    return references
