"""What runs cost: the exact passes of a training, a time estimated on this machine, and how much of a plan is done."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from uiat.attacks import PGD
from uiat.bench.race import bare_seconds
from uiat.bench.timed import BenchSetting, Passes, bare, passes_per_image
from uiat.config import AnyConfig, Training
from uiat.data.data_config import DataConfig
from uiat.evaluation.suite import plan_attack
from uiat.methods.passes import Need
from uiat.precision import Precision
from uiat.progress import Ticker
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import Attacked, Curve, Measure
from uiat.types import DataSpec

SETS: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "digits": (1438, 359, 10, (1, 8, 8)),
    "cifar10": (50_000, 10_000, 10, (3, 32, 32)),
    "cifar100": (50_000, 10_000, 100, (3, 32, 32)),
    "cifar100-coarse": (50_000, 10_000, 20, (3, 32, 32)),
    "fashion-mnist": (60_000, 10_000, 10, (1, 28, 28)),
    "svhn": (73_257, 26_032, 10, (3, 32, 32)),
}
"""Training images, test images, classes and shape, so that a plan needs no data."""
TYPICAL = 0.5
"""The share of images that the first attack of a cascade leaves to the others, at a robust accuracy of about a half."""


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


def images_per_epoch(config: AnyConfig) -> int:
    """Return how many images an epoch sees; with generated ones all of its batches are full."""
    train, batch = sizes(config.data).train, config.train.batch_size
    if not config.data.generated.file:
        return train
    full, left = divmod(train, batch)
    return max(1, full + (left > 1)) * batch


def training_passes(config: AnyConfig) -> Passes:
    """Return the passes of a whole training; a helper's are those of its own run."""
    images, train = images_per_epoch(config), config.train
    forward, inputs, weights = passes_per_image(config.method, train.epochs, train.awp)
    return images * forward, images * inputs, images * weights


def measuring_passes(measure: Measure, config: AnyConfig, share: float = 1.0) -> float:
    """Return how many (forward + input-backward) passes a measurement takes, at most.

    `share` is that of the images that a cascade such as AutoAttack still attacks after its first component.
    """
    size = sizes(config.data)
    n, classes = measure.n or size.test, size.spec.num_classes
    if isinstance(measure, Attacked | Curve):
        costs = [part.cost for part in plan_attack(measure.attack, PGD(), num_classes=classes, seed=0).components]
        above = max(0.5, sum(costs[:1]) + share * sum(costs[1:]))
    if isinstance(measure, Attacked):
        return n * above
    if isinstance(measure, Curve):
        return n * sum(above if eps > 0 else 20.5 for eps in measure.grid)
    return n * 20.0


Pace = tuple[float, float, float]
"""Seconds of a pass for one image: forward, backward to the input, backward to the weights."""


def seconds_of(passes: Passes, speed: Pace) -> float:
    """Return the seconds of so many passes."""
    return sum(count * seconds for count, seconds in zip(passes, speed, strict=True))


@cache
def pace(model: Any, spec: DataSpec, device: torch.device, precision: Precision = "fp32") -> Pace:
    """Time the bare passes of a network on this machine, with a small batch."""
    small = sum(parameter.numel() for parameter in model.build(spec).parameters()) < 1e6
    rows = 32 if small else 4 if device.type == "cpu" else 128
    passes = bare(BenchSetting(model, spec, rows, device, Training(precision=precision)))
    needs = (Need(craft_forward=1), Need(craft_gradient=1), Need(update=1))
    forward, gradient, update = (min(bare_seconds(passes, need, device) for _ in range(3)) / rows for need in needs)
    return forward, max(0.0, gradient - forward), max(0.0, update - forward)


def seconds(cell: Cell, device: torch.device, share: float = 1.0) -> tuple[float, float]:
    """Estimate the seconds that training and measurements of a cell take, from nothing; see `measuring_passes`."""
    config, size = cell.config, sizes(cell.config.data)
    model: Any = config.model
    training = seconds_of(training_passes(config), pace(model, size.spec, device, config.train.precision))
    step = sum(pace(model, size.spec, device)[:2])  # measurements are made in float32
    if cell.watch is not None:
        watched = (cell.watch.train or size.train) + (cell.watch.test or size.test)
        training += config.train.epochs * watched * cell.watch.steps * step
    return training, step * sum(measuring_passes(measure, config, share) for measure in cell.measures)


def seconds_left(cells: Sequence[Cell], out: Path, device: torch.device, share: float = 1.0) -> float:
    """Estimate the seconds that are left to one process."""
    costs = [(Store(cell, out), seconds(cell, device, share)) for cell in cells]
    return sum(sum(cost) - work_done(store, cost) for store, cost in costs)


class PlanProgress(Ticker):
    """Shows how much of a plan is done, read from its folders, so that the work of all processes counts."""

    def __init__(self, cells: Sequence[Cell], out: Path, device: torch.device):
        costs = [seconds(cell, device) for cell in cells]
        self.stores = {Store(cell, out): cost for cell, cost in zip(cells, costs, strict=True)}
        self.known = dict.fromkeys(self.stores, 0.0)
        super().__init__(sum(a + b for a, b in costs), "")
        self.look(free=True)

    def look(self, *, free: bool = False) -> None:
        """Count what was done since the last look; `free` is what was there before."""
        gained = 0.0
        for store, cost in self.stores.items():
            if self.known[store] < sum(cost):
                now = max(work_done(store, cost), self.known[store])
                gained += now - self.known[store]
                self.known[store] = now
        count = sum(self.known[store] >= sum(cost) for store, cost in self.stores.items())
        self.advance(gained, f"{count} of {len(self.stores)} runs", free=free)


def work_done(store: Store, cost: tuple[float, float]) -> float:
    """Return how much of a cell's cost (training, measuring) is done."""
    if store.finished:
        return sum(cost)
    if store.trained:
        measures = store.cell.measures
        return cost[0] + cost[1] * sum(map(store.has, measures)) / max(1, len(measures)) * 0.999
    return cost[0] * 0.999 * store.epochs / store.cell.config.train.epochs
