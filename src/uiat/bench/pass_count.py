"""Passes through the network that a training step makes, counted on a small network."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from uiat.bench.setting import BenchSetting
from uiat.config import AWP, Training
from uiat.methods import MethodConfig
from uiat.types import Clock, DataSpec

DIRECTIONS = ("forward", "input_backward", "weight_backward")
"""What `PassCounter` counts, and what costs are stated in."""
PASS_KINDS = ("craft_forward", "craft_gradient", "train_gradient", "predict", "update", "double")
"""Kinds of passes that differ in cost; `bare_passes` has a pass of each kind."""
Passes = tuple[int, int, int]
"""Samples sent forward, backward to the input, and backward to the weights."""
ROWS = 8
"""Samples of the batch that passes are counted with."""
SPEC = DataSpec(num_classes=4, num_samples=ROWS, shape=(1, 4, 4))
"""Data dimensions to count with where those of the run do not matter."""


@dataclass(frozen=True)
class PhasePasses:
    """Passes of a training step in a phase of a run: a part in which all steps make the same passes."""

    clock: Clock
    """The last epoch of the phase."""
    share: float
    """The share of the run's epochs that the phase has."""
    counts: Mapping[str, float]
    """Passes through the trained network in each direction, in batches."""
    kinds: Mapping[str, float]
    """Passes of each kind, in batches; those through a helper (HAT) are included."""


def count_passes(method: MethodConfig, train: Training, spec: DataSpec = SPEC) -> list[PhasePasses]:
    """Make a step in each phase of a run on a small linear network, and return the passes of each."""
    plain = Training(epochs=train.epochs, awp=train.awp, fast=False)
    setting = BenchSetting(LinearModel(), replace(spec, num_samples=ROWS), ROWS, torch.device("cpu"), plain)
    helper = setting.build_helper(method)
    state = setting.build_state(method, helper)
    phases = []
    for clock, share in phases_of(method, train):
        recorder, before = PassRecorder(state.model, helper), dict(state.passes.counts)
        setting.make_step(type(method).__name__, state, clock)()
        counts = {name: (state.passes.counts[name] - before[name]) / ROWS for name in DIRECTIONS}
        phases.append(PhasePasses(clock, share, counts, {k: n / ROWS for k, n in recorder.close().items()}))
    return phases


def phases_of(method: MethodConfig, train: Training) -> list[tuple[Clock, float]]:
    """Return the last epoch of each phase of a run, and the phase's share of the epochs.

    A phase begins at T' of the one-off strategy, after it, and where AWP begins. Where T' is after the last epoch, the
    run is extended to T'.
    """
    epochs, starts = train.epochs, {1, train.awp.warmup + 1} if train.awp.enabled else {1}
    if method.one_off is not None:
        one_off_epoch = Clock(1, 0, epochs).epoch_at(method.one_off.epoch)
        epochs = max(epochs, one_off_epoch)
        starts |= {one_off_epoch, one_off_epoch + 1}
    ends = [start - 1 for start in sorted(starts) if start <= epochs] + [epochs]
    return [(Clock(end, 0, epochs), (end - before) / epochs) for before, end in pairwise(ends)]


@cache
def passes_per_image(method: MethodConfig, epochs: int, awp: AWP | None = None) -> Passes:
    """Return the passes of all epochs for one image."""
    phases = count_passes(method, Training(epochs=epochs, awp=awp or AWP()))
    forward, inputs, weights = (sum(p.counts[name] * p.share * epochs for p in phases) for name in DIRECTIONS)
    return round(forward), round(inputs), round(weights)


@dataclass(frozen=True)
class LinearModel:
    """A linear classifier of the mean colour: a step takes milliseconds at any image size."""

    def build(self, data: DataSpec) -> nn.Module:
        """Return the network."""
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(data.shape[0], data.num_classes))


@dataclass
class _Forward:
    samples: int
    trained: bool
    """Whether any parameter had a gradient."""
    training: bool
    backwards: int = 0

    @property
    def kind(self) -> tuple[str, int]:
        """The kind of pass that this forward and its backwards make, and how many of them."""
        if not self.backwards:
            return "predict" if self.training else "craft_forward", 1
        if not self.trained:
            return "train_gradient" if self.training else "craft_gradient", self.backwards
        return "update" if self.backwards == 1 else "double", 1


class PassRecorder:
    """Records the kind of each pass through a network, and through a helper beside it, until it is closed."""

    def __init__(self, network: nn.Module, helper: nn.Module | None = None):
        self._forwards: list[_Forward] = []
        modules = [module for module in (network, helper) if module is not None]
        self._handles = [module.register_forward_hook(self._record) for module in modules]

    def close(self) -> dict[str, int]:
        """Stop recording, and return the samples of each kind of pass."""
        for handle in self._handles:
            handle.remove()
        totals = dict.fromkeys(PASS_KINDS, 0)
        for forward in self._forwards:
            kind, times = forward.kind
            totals[kind] += forward.samples * times
        return totals

    def _record(self, network: nn.Module, _inputs: Any, output: Tensor) -> None:
        trained = any(parameter.requires_grad for parameter in network.parameters())
        forward = _Forward(len(output), trained, network.training)
        self._forwards.append(forward)

        def count(_gradient: Tensor) -> None:
            forward.backwards += 1

        if output.requires_grad:
            output.register_hook(count)
