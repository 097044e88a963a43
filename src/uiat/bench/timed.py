"""Methods with the phases of their runs, ready to be timed and to have their passes counted; literal references."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise

import torch
from torch import nn

from uiat.bench.baselines import BarePass, Step, bare_passes, literal_hat, literal_natural, literal_trades
from uiat.config import AWP, AnyConfig, Config, Training
from uiat.data.data_config import DataConfig
from uiat.engine.setup import build_model, build_state
from uiat.engine.state import State
from uiat.engine.step import train_step
from uiat.errors import UserError
from uiat.methods import METHODS, MethodConfig
from uiat.methods.passes import Need
from uiat.models import ModelConfig
from uiat.rng import generator
from uiat.types import Batch, Clock, DataSpec

LR = 0.01
KINDS = ("forward", "input_backward", "weight_backward")
Passes = tuple[int, int, int]
"""Samples sent forward, backward to the input, and backward to the weights."""


@dataclass(frozen=True)
class BenchSetting:
    """What all methods run on: the network, the data's dimensions and the batch; `train` says how, and how long."""

    model: ModelConfig
    spec: DataSpec
    batch_size: int
    device: torch.device
    train: Training = Training()

    def config(self, method: MethodConfig) -> AnyConfig:
        """Return the configuration of a run with this method."""
        return Config(DataConfig(), self.model, method, replace(self.train, batch_size=self.batch_size))

    def batch(self, seed: int = 0) -> Batch:
        """Return a batch of noise: a step costs the same as with images."""
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
    bare: Mapping[str, BarePass] = field(default_factory=dict)
    """Bare passes to time beside its steps; none: steps alone are timed."""

    @property
    def stated(self) -> bool:
        """Whether the passes of all phases are stated."""
        return all(phase.stated for phase in self.phases)


def timed_method(
    name: str, setting: BenchSetting, method: MethodConfig | None = None, bare: Mapping[str, BarePass] | None = None
) -> TimedMethod:
    """Return a method (the registered one of that name, if none is given), ready to make steps."""
    method = METHODS[name] if method is None else method
    config = setting.config(method)
    helper = build_model(config, setting.spec, setting.device).requires_grad_(False) if method.needs_helper else None
    state = build_state(config, setting.spec, setting.device, helper)
    phases = []
    for clock, share in phases_of(method, setting.train):
        step = _step(name, state, setting, clock)
        stated = method.passes(clock)
        passes = _counted_need(state, step, setting.batch_size) if stated is None else stated
        phases.append(Phase(share, passes, step, stated is not None))
    return TimedMethod(name, tuple(phases), state, setting.batch_size, bare or {})


def phases_of(method: MethodConfig, train: Training) -> list[tuple[Clock, float]]:
    """Return the last moment of each phase of a run, and the phase's share of the epochs.

    Steps cost the same in all epochs but around T' of the one-off strategy, and where AWP begins. Where T' is after the
    last epoch, the run is as long as it takes to reach T'.
    """
    epochs, starts = train.epochs, {1, train.awp.warmup + 1} if train.awp.enabled else {1}
    if method.one_off is not None:
        moment = Clock(1, 0, epochs).epoch_at(method.one_off.epoch)
        epochs = max(epochs, moment)
        starts |= {moment, moment + 1}
    ends = [start - 1 for start in sorted(starts) if start <= epochs] + [epochs]
    return [(Clock(end, 0, epochs), (end - before) / epochs) for before, end in pairwise(ends)]


def _counted_need(state: State, step: Callable[[], object], batch_size: int) -> Need:
    """Return the passes that a step makes, as kinds of bare passes; a forward without a backward counts as a p."""
    made = _count(state, step, batch_size)
    gradients, updates = made["input_backward"], made["weight_backward"]
    kind = "craft_gradient" if state.method.crafting == "eval" else "train_gradient"
    return Need(predict=max(0, made["forward"] - gradients - updates), update=updates) + Need(**{kind: gradients})


def _step(name: str, state: State, setting: BenchSetting, clock: Clock) -> Callable[[], object]:
    batch = setting.batch()

    def step() -> None:
        plan = setting.train
        fault = train_step(state, batch, clock, lr=LR, micro_batch=plan.micro_batch, awp=plan.awp)
        if fault is not None:
            raise UserError(
                f"{fault.what} is not finite in a step of {name}, which therefore moved no weight and cannot be timed: "
                "choose another precision or network."
            )

    return step


def counted(method: TimedMethod) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Make a step in each phase; return the passes that were counted, and those that the method states, in batches."""
    assert method.state is not None
    return [(_count(method.state, phase.step, method.batch_size), phase.need.counts) for phase in method.phases]


def _count(state: State, step: Callable[[], object], batch_size: int) -> dict[str, float]:
    """Make a step, and return the passes that it took, in batches."""
    before = dict(state.passes.counts)
    step()
    return {kind: (state.passes.counts[kind] - before[kind]) / batch_size for kind in KINDS}


@dataclass(frozen=True)
class LinearModel:
    """A linear network, on which passes are counted quickly."""

    def build(self, data: DataSpec) -> nn.Module:
        """Return the network."""
        return nn.Sequential(nn.Flatten(), nn.Linear(data.numel, data.num_classes))


@cache
def passes_per_image(method: MethodConfig, epochs: int, awp: AWP | None = None) -> Passes:
    """Return the passes of all epochs for one image, counted in steps on a linear network."""
    train = Training(epochs=epochs, fast=False, awp=awp or AWP())
    setting = BenchSetting(LinearModel(), DataSpec(4, 8, (1, 4, 4)), 8, torch.device("cpu"), train)
    timed = timed_method(type(method).__name__, setting, method)
    total = dict.fromkeys(KINDS, 0.0)
    for phase, (made, _) in zip(timed.phases, counted(timed), strict=True):
        total = {kind: total[kind] + made[kind] * phase.share * epochs for kind in KINDS}
    return round(total["forward"]), round(total["input_backward"]), round(total["weight_backward"])


def references(setting: BenchSetting) -> list[TimedMethod]:
    """Return literal steps of natural training, TRADES and HAT: plain layout, float32, not compiled."""
    steps: dict[str, Callable[..., Step]] = {"natural": literal_natural, "trades": literal_trades, "hat": literal_hat}
    batch, literals = setting.batch(), []
    for name, literal in steps.items():
        model, *helper = (setting.model.build(setting.spec).to(setting.device) for _ in range(1 + (name == "hat")))
        optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.9, nesterov=True, weight_decay=5e-4)
        step = partial(literal(model, optimizer, *helper), batch.x, batch.y)
        literals.append(TimedMethod(f"literal {name}", (Phase(1.0, Need(), step),)))
    return literals


def bare(setting: BenchSetting) -> dict[str, BarePass]:
    """Return the bare passes on a network of their own, in the precision of the setting."""
    state = build_state(setting.config(METHODS["sat"]), setting.spec, setting.device, None)
    state.passes.close()
    state.model.train()
    batch = setting.batch()
    return bare_passes(state.network, batch.x, batch.y, state.autocast)
