"""What runs cost: the exact passes of a training from its configuration, and a time estimated on this machine."""

import time
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from uiat.attacks import PGD
from uiat.config import AWP, AnyConfig
from uiat.data.config import DataConfig
from uiat.engine.passes import PassCounter
from uiat.engine.state import State
from uiat.engine.step import train_step
from uiat.evaluation.suite import plan_attack
from uiat.methods import MethodConfig
from uiat.reproduce.cell import Cell
from uiat.reproduce.measures import Attacked, Curve, Measure
from uiat.types import Batch, Clock, DataSpec

SETS: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "digits": (1438, 359, 10, (1, 8, 8)),
    "cifar10": (50_000, 10_000, 10, (3, 32, 32)),
    "cifar100": (50_000, 10_000, 100, (3, 32, 32)),
    "svhn": (73_257, 26_032, 10, (3, 32, 32)),
}
"""Training images, test images, classes and shape, so that a plan needs no data."""
KINDS = ("forward", "input_backward", "weight_backward")
Passes = tuple[int, int, int]
"""Samples sent forward, backward to the input, and backward to the weights."""
_TOY = DataSpec(num_classes=4, num_samples=8, shape=(1, 4, 4))


@dataclass(frozen=True)
class Sizes:
    """How many images a run sees."""

    train: int
    test: int
    spec: DataSpec


def sizes(data: DataConfig) -> Sizes:
    """Return the sizes of a run's splits."""
    train, test, classes, shape = SETS[data.name]
    train, test = data.subset or train, data.test_subset or test
    train -= data.validation or max(1, min(1024, train // 10))
    if data.size is not None:
        high, wide = data.size if isinstance(data.size, tuple) else (data.size, data.size)
        shape = (shape[0], high, wide)
    return Sizes(train, test, DataSpec(classes, train, shape))


def training_passes(config: AnyConfig) -> Passes:
    """Return the passes of a whole training; a helper's are those of its own run."""
    method: Any = config.method
    return _scaled(passes_per_image(method, config.train.epochs, config.train.awp), images_per_epoch(config))


def images_per_epoch(config: AnyConfig) -> int:
    """Return how many images an epoch sees; with generated ones all of its batches are full."""
    train, batch = sizes(config.data).train, config.train.batch_size
    if not config.data.generated.file:
        return train
    full, left = divmod(train, batch)
    return max(1, full + (left > 1)) * batch


@cache
def passes_per_image(method: Any, epochs: int, awp: AWP | None = None) -> Passes:
    """Return the passes of all epochs for one image, counted in a step on a toy: nothing here knows the methods.

    Epochs differ only around T' of the one-off strategy, and where AWP begins.
    """
    awp, one_off = awp or AWP(), method.one_off
    toy, starts = _Toy(method, epochs, awp), {1, awp.warmup + 1}
    if one_off is not None:
        moment = Clock(1, 0, epochs).epoch_at(one_off.epoch)
        starts |= {moment, moment + 1}
    ordered = [*sorted(start for start in starts if start <= epochs), epochs + 1]
    counts = [_scaled(toy.count(start), end - start) for start, end in pairwise(ordered)]
    return sum(c[0] for c in counts), sum(c[1] for c in counts), sum(c[2] for c in counts)


class _Toy:
    """A linear network, and a method that is stepped on it with passes counted."""

    def __init__(self, method: MethodConfig, epochs: int, awp: AWP):
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4)).train()
        helper = nn.Sequential(nn.Flatten(), nn.Linear(16, 4)).requires_grad_(False)
        built, self.epochs, self.awp = method.build(_TOY, helper=helper), epochs, awp
        built(model, self._batch(), Clock(1, 0, epochs))  # finds the layer of the features, uncounted
        self.state = State(model, built, torch.optim.SGD(model.parameters(), lr=0.0), PassCounter(model))

    def count(self, epoch: int) -> Passes:
        before = dict(self.state.passes.counts)
        train_step(self.state, self._batch(), Clock(epoch, 0, self.epochs), lr=0.0, awp=self.awp)
        counts = [(self.state.passes.counts[kind] - before[kind]) // len(self._batch()) for kind in KINDS]
        return counts[0], counts[1], counts[2]

    @staticmethod
    def _batch() -> Batch:
        x = torch.linspace(0, 1, 128).reshape(8, 1, 4, 4)
        return Batch(x, torch.arange(8) % 4, torch.arange(8))


def _scaled(passes: Passes, times: int) -> Passes:
    return passes[0] * times, passes[1] * times, passes[2] * times


def measuring_passes(measure: Measure, config: AnyConfig) -> float:
    """Return at most how many (forward + input-backward) passes a measurement takes."""
    size = sizes(config.data)
    n, classes = measure.n or size.test, size.spec.num_classes
    if isinstance(measure, Attacked):
        return n * max(0.5, plan_attack(measure.attack, PGD(), num_classes=classes, seed=0).cost)
    if isinstance(measure, Curve):
        above = plan_attack(measure.attack, PGD(), num_classes=classes, seed=0).cost
        return n * sum(above if eps > 0 else 20.5 for eps in measure.grid)
    return n * 20.0


@dataclass(frozen=True)
class Pace:
    """Seconds of a pass for one image."""

    forward: float
    input_backward: float
    weight_backward: float

    def of(self, passes: Passes) -> float:
        """Return the seconds of so many passes."""
        return passes[0] * self.forward + passes[1] * self.input_backward + passes[2] * self.weight_backward


@cache
def pace(model: Any, spec: DataSpec, device: torch.device) -> Pace:
    """Time a network on this machine, with a small batch."""
    network = model.build(spec).to(device).eval()
    rows = 32 if sum(p.numel() for p in network.parameters()) < 1e6 else 4 if device.type == "cpu" else 128
    x = torch.rand(rows, *spec.shape, device=device)

    def once(weights: bool, inputs: bool) -> float:
        network.requires_grad_(weights)
        began = time.perf_counter()
        with torch.set_grad_enabled(weights or inputs):
            out = network(x.clone().requires_grad_(inputs)).sum()
            if weights or inputs:
                out.backward()
        float(out.detach())  # wait for the device
        network.zero_grad(set_to_none=True)
        return time.perf_counter() - began

    settings = ((False, False), (False, True), (True, True))
    forward, with_input, with_weights = (min(once(*setting) for _ in range(3)) / rows for setting in settings)
    return Pace(forward, max(0.0, with_input - forward), max(0.0, with_weights - forward))


def seconds(cell: Cell, device: torch.device) -> tuple[float, float]:
    """Estimate the seconds that the training and the measurements of a cell take, each from nothing."""
    config, size = cell.config, sizes(cell.config.data)
    model: Any = config.model
    speed = pace(model, size.spec, device)
    training = speed.of(training_passes(config))
    step = speed.forward + speed.input_backward
    watch = 0.0
    if cell.watch is not None:
        watched = (cell.watch.train or size.train) + (cell.watch.test or size.test)
        watch = config.train.epochs * watched * cell.watch.steps * step
    return training + watch, step * sum(measuring_passes(measure, config) for measure in cell.measures)
