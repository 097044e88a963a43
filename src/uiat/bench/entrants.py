"""Who runs in a benchmark: every method in each phase of its run, and literal references."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from uiat.bench import reference
from uiat.bench.bare import Bare, bare_passes
from uiat.config import AnyConfig, Config, Training
from uiat.data.config import DataConfig
from uiat.engine.setup import build_model, build_state
from uiat.engine.state import State
from uiat.engine.step import train_step
from uiat.errors import UserError
from uiat.methods import METHODS, MethodConfig
from uiat.methods.passes import Need
from uiat.models import ModelConfig
from uiat.rng import generator
from uiat.types import Batch, Clock, DataSpec

EPOCHS = 100
LATE = 90
"""A method without phases is measured here, with its momentum at work."""
LR = 0.01


@dataclass(frozen=True)
class BenchSetting:
    """What everybody runs on: the network, the batch and the data's dimensions."""

    model: ModelConfig
    spec: DataSpec
    batch_size: int
    device: torch.device
    train: Training = Training()

    def config(self, method: MethodConfig) -> AnyConfig:
        """Return the configuration of a run with this method."""
        train = replace(self.train, epochs=EPOCHS, batch_size=self.batch_size)
        return Config(DataConfig(), self.model, method, train)

    def batch(self, seed: int = 0) -> Batch:
        """Return noise in the place of images: a step costs the same."""
        key, n, spec = generator(seed, "bench"), self.batch_size, self.spec
        x = torch.rand((n, *spec.shape), generator=key)
        y = torch.randint(spec.num_classes, (n,), generator=key)
        index = torch.randperm(spec.num_samples, generator=key)[:n]
        return Batch(x.to(self.device), y.to(self.device), index.to(self.device))


@dataclass(frozen=True)
class Phase:
    """A part of a run in which all steps cost the same."""

    share: float
    """Its share of the run's epochs."""
    need: Need
    step: Callable[[], object]
    stated: bool = True
    """Whether the method states what it needs; else the passes of a step were counted."""


@dataclass(frozen=True)
class TimedMethod:
    """A method, or a reference, with the phases of its run."""

    name: str
    phases: tuple[Phase, ...]
    state: State | None = None
    batch_size: int = 0
    """Samples in one of its steps."""
    passes: Mapping[str, Bare] = field(default_factory=dict)
    """Bare passes to time beside its steps; none: steps alone are timed."""

    @property
    def need(self) -> Need:
        """Passes of a step, averaged over a run."""
        total = Need()
        for phase in self.phases:
            total = total + phase.need * phase.share
        return total

    @property
    def stated(self) -> bool:
        """Whether all of this is stated."""
        return all(phase.stated for phase in self.phases)


def enter(
    name: str, course: BenchSetting, method: MethodConfig | None = None, passes: Mapping[str, Bare] | None = None
) -> TimedMethod:
    """Return a method (the registered one of that name, if none is given), ready to make steps."""
    method = METHODS[name] if method is None else method
    config = course.config(method)
    helper = build_model(config, course.spec, course.device).requires_grad_(False) if method.needs_helper else None
    state = build_state(config, course.spec, course.device, helper)
    phases = []
    for clock, share in _clocks(method):
        step = _step(name, state, course, clock)
        stated = method.passes(clock)
        needed = stated or _need_of(state, step, course.batch_size)
        phases.append(Phase(share, needed, step, stated=stated is not None))
    return TimedMethod(name, tuple(phases), state, course.batch_size, passes or {})


def _need_of(state: State, step: Callable[[], object], batch_size: int) -> Need:
    """Return the passes that a step makes, as kinds of bare passes; a forward without a backward counts as a p."""
    made = _made(state, step, batch_size)
    gradients, updates = made["input_backward"], made["weight_backward"]
    kind = "craft_gradient" if state.method.crafting == "eval" else "train_gradient"
    return Need(predict=max(0, made["forward"] - gradients - updates), update=updates) + Need(**{kind: gradients})


def _clocks(method: MethodConfig) -> list[tuple[Clock, float]]:
    """Return a moment in each phase of a run, and the phase's share."""
    if method.one_off is None:
        return [(Clock(LATE, 0, EPOCHS), 1.0)]
    moment = Clock(1, 0, EPOCHS).epoch_at(method.one_off.epoch)
    epochs = max(EPOCHS, moment)  # T' as an epoch of a longer run
    phases = {moment - 1: moment - 1, moment: 1, moment + 1: epochs - moment}
    return [(Clock(epoch, 0, epochs), count / epochs) for epoch, count in phases.items() if count]


def _step(name: str, state: State, course: BenchSetting, clock: Clock) -> Callable[[], object]:
    batch = course.batch()

    def step() -> None:
        fault = train_step(state, batch, clock, lr=LR)
        if fault is not None:
            raise UserError(
                f"{fault.what} is not finite in a step of {name}, which therefore moved no weight and cannot be timed: "
                "choose another precision or network."
            )

    return step


def counted(entrant: TimedMethod) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Make a step in each phase; return the passes that were counted, and those that the method states, in batches."""
    assert entrant.state is not None
    return [(_made(entrant.state, phase.step, entrant.batch_size), phase.need.counts) for phase in entrant.phases]


def _made(state: State, step: Callable[[], object], batch_size: int) -> dict[str, float]:
    """Make a step, and return the passes that it took, in batches."""
    counts = state.passes.counts
    before = dict(counts)
    step()
    return {name: (counts[name] - before[name]) / batch_size for name in counts}


def references(course: BenchSetting) -> list[TimedMethod]:
    """Return literal twins of natural training, TRADES and HAT: plain layout, float32, not compiled, on any course."""
    batch = course.batch()
    found = []
    for name in ("natural", "trades", "hat"):
        model = course.model.build(course.spec).to(course.device)
        optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.9, nesterov=True, weight_decay=5e-4)
        found.append(
            TimedMethod(f"literal {name}", (Phase(1.0, Need(), _literal(name, model, optimizer, course, batch)),))
        )
    return found


def _literal(
    name: str, model: nn.Module, optimizer: torch.optim.Optimizer, course: BenchSetting, batch: Batch
) -> Callable[[], object]:
    if name == "hat":
        helper = course.model.build(course.spec).to(course.device)
        step = reference.hat(model, optimizer, helper)
    else:
        step = (reference.natural if name == "natural" else reference.trades)(model, optimizer)
    return lambda: step(batch.x, batch.y)


def bare(course: BenchSetting) -> dict[str, Bare]:
    """Return the bare passes on a network of their own, in the precision of the course."""
    state = build_state(course.config(METHODS["sat"]), course.spec, course.device, None)
    state.passes.close()
    state.model.train()
    batch = course.batch()
    return bare_passes(state.model, batch.x, batch.y, state.lowered)
