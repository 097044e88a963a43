"""Estimated time of the paper's tables and figures on this machine, and progress of a plan."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from uiat.attacks import PGD
from uiat.bench.cost_estimate import images_per_epoch, pace, training_passes, training_seconds
from uiat.bench.pass_count import Passes
from uiat.config import AnyConfig
from uiat.data import split_sizes
from uiat.evaluation.suite import plan_attack
from uiat.progress import Ticker
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import Attacked, Curve, Measure

TYPICAL = 0.5
"""Typical share of images that are still correctly classified after the first attack of a cascade."""


def cell_passes(config: AnyConfig) -> Passes:
    """Return the passes of a whole training; those of a helper belong to the helper's run."""
    return training_passes(config, images_per_epoch(config, split_sizes(config.data).train))


def measuring_passes(measure: Measure, config: AnyConfig, share: float = 1.0) -> float:
    """Return the maximum number of (forward + input-backward) passes of a measurement.

    `share` is the share of images that a cascade such as AutoAttack still attacks after its first component.
    """
    size = split_sizes(config.data)
    n, classes = measure.n or size.test, size.spec.num_classes
    if isinstance(measure, Attacked | Curve):
        costs = [part.cost for part in plan_attack(measure.attack, PGD(), num_classes=classes, seed=0).components]
        above = max(0.5, sum(costs[:1]) + share * sum(costs[1:]))
    if isinstance(measure, Attacked):
        return n * above
    if isinstance(measure, Curve):
        return n * sum(above if eps > 0 else 20.5 for eps in measure.grid)
    return n * 20.0


def seconds(cell: Cell, device: torch.device, share: float = 1.0) -> tuple[float, float]:
    """Estimate the seconds of a cell's training and of its measurements, from scratch; see `measuring_passes`."""
    config, size = cell.config, split_sizes(cell.config.data)
    model: Any = config.model
    training = training_seconds(config, cell_passes(config), size.validation, size.spec, device)
    step = sum(pace(model, size.spec, device)[:2])  # evaluation runs in float32
    if cell.watch is not None:
        watched = (cell.watch.train or size.train) + (cell.watch.test or size.test)
        training += config.train.epochs * watched * cell.watch.steps * step
    return training, step * sum(measuring_passes(measure, config, share) for measure in cell.measures)


def seconds_left(cells: Sequence[Cell], out: Path, device: torch.device, share: float = 1.0) -> float:
    """Estimate the remaining seconds for one process."""
    costs = [(Store(cell, out), seconds(cell, device, share)) for cell in cells]
    return sum(sum(cost) - work_done(store, cost) for store, cost in costs)


class PlanProgress(Ticker):
    """Progress bar of a plan, read from its folders, so that it includes the work of all processes."""

    def __init__(self, cells: Sequence[Cell], out: Path, device: torch.device):
        costs = [seconds(cell, device) for cell in cells]
        self.stores = {Store(cell, out): cost for cell, cost in zip(cells, costs, strict=True)}
        self.known = dict.fromkeys(self.stores, 0.0)
        super().__init__(sum(a + b for a, b in costs), "")
        self.look(free=True)

    def look(self, *, free: bool = False) -> None:
        """Update the progress; `free`: what has been done before does not count for the remaining time."""
        gained = 0.0
        for store, cost in self.stores.items():
            if self.known[store] < sum(cost):
                now = max(work_done(store, cost), self.known[store])
                gained += now - self.known[store]
                self.known[store] = now
        count = sum(self.known[store] >= sum(cost) for store, cost in self.stores.items())
        self.advance(gained, f"{count} of {len(self.stores)} runs", free=free)


def work_done(store: Store, cost: tuple[float, float]) -> float:
    """Return the completed part of a cell's cost (training, measuring)."""
    if store.finished:
        return sum(cost)
    if store.trained:
        measures = store.cell.measures
        return cost[0] + cost[1] * sum(map(store.has, measures)) / max(1, len(measures)) * 0.999
    return cost[0] * 0.999 * store.run.count_epochs() / store.cell.config.train.epochs
