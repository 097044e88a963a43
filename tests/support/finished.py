"""Runs, learning curves and races that look finished, with numbers that a test gives."""

from pathlib import Path

import torch
from torch import Tensor

from uiat.io import write_json, write_tensors
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import LEARNING_FILE, LEARNING_LINES, Measure
from uiat.reproduce.timing import Timing


def first_of(n: int, share: float) -> Tensor:
    """Return verdicts on n images of which the first ones are right: more of them is right wherever fewer is."""
    return torch.arange(n) < round(share * n)


def trained(cell: Cell, out: Path, seed: int) -> Store:
    """Write what tells that a run is trained."""
    store = Store(cell.at_seed(seed), out)
    store.measures.mkdir(parents=True, exist_ok=True)
    write_json(store.run.result, {"config": {}})
    return store


def measured(cell: Cell, measure: Measure, tensors: dict[str, Tensor], out: Path, seeds: int = 2) -> None:
    """Write a measurement of a trained run, the same at every seed."""
    for seed in range(seeds):
        trained(cell, out, seed).keep(measure, ({}, tensors))


def learned(cell: Cell, robust: list[Tensor], out: Path, seeds: int = 2) -> None:
    """Write the learning curve of a trained run: verdicts on the test set under attack, epoch by epoch."""
    for seed in range(seeds):
        store = trained(cell, out, seed)
        lines = {f"{line}/{epoch}": verdicts for epoch, verdicts in enumerate(robust, 1) for line in LEARNING_LINES}
        others = {name: ~verdicts for name, verdicts in lines.items() if not name.startswith("test robust")}
        write_tensors(store.path / LEARNING_FILE, lines | others)


def raced(timing: Timing, seconds: dict[str, list[float]], out: Path) -> None:
    """Write the seconds of an epoch of each method, round by round."""
    path = timing.file(out, torch.device("cpu"))
    path.parent.mkdir(parents=True, exist_ok=True)
    steps = {method: [value / timing.steps for value in rounds] for method, rounds in seconds.items()}
    write_json(path, {"seconds_a_step": steps})
