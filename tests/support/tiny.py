"""A tiny smoke scale, with runs of a fraction of a second, and files of finished runs."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.moments import at_call, kill, terminate
from tests.support.processes import Fork, fork
from uiat.attacks import PGD
from uiat.cli import main
from uiat.config import AnyConfig
from uiat.io import write_json, write_tensors
from uiat.models import ResNet
from uiat.recipes.paper import as_single_step
from uiat.reproduce import scales, timing
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import LEARNING_FILE, LEARNING_LINES, Measure, Watch
from uiat.reproduce.scale import Scale
from uiat.reproduce.scales import stand_in_name
from uiat.reproduce.timing import Timing
from uiat.targets import InstanceInverse

WIDTHS = {"ResNet-18": 2, "WRN-28": 3, "WRN-34": 4}


def tiny_config(method: str, data: str, network: str) -> AnyConfig:
    config = scales.smoke(method, data, network)
    return replace(
        config,
        model=ResNet(blocks=(1, 1), width=WIDTHS[network]),
        method=_few_steps(config.method),
        data=replace(config.data, subset=80, validation=20),
        train=replace(config.train, epochs=3, batch_size=32),
        validate=replace(config.validate, steps=2),
    )


def tiny_generated(method: str, data: str, network: str) -> AnyConfig | None:
    config = scales.smoke_generated(method, data, network)
    if config is None:
        return None
    size = tiny_config(method, data, "ResNet-18")
    images = replace(size.data, generated=replace(config.data.generated, file=stand_in_name(size.data)))
    model = replace(config.model, width=2)  # type: ignore[type-var]
    own = replace(config, data=images, model=model, method=_few_steps(config.method), validate=size.validate)
    return replace(own, train=replace(own.train, epochs=3, batch_size=32))


def _few_steps(method: Any) -> Any:
    changes: dict[str, Any] = {}
    if isinstance(getattr(method, "attack", None), PGD):
        changes["attack"] = replace(method.attack, steps=2)
    if isinstance(getattr(method, "inverse", None), InstanceInverse):
        changes["inverse"] = replace(method.inverse, steps=1)
    return replace(method, **changes)


TINY = replace(
    scales.SCALES["smoke"],
    runs=tiny_config,
    single_step_run=lambda method: as_single_step(tiny_config(method, "CIFAR-10", "ResNet-18")),
    generated=tiny_generated,
    images=40,
    robust="pgd-3",
    aa="pgd-3",
    robust_images=20,
    watch=Watch(train=20, test=30, steps=2),
    rounds=2,
    lam=(1.0, 3.5),
    beta=(0.0, 1.0),
    gamma=(0.5, 0.9),
    start=(0.34, 0.75),
    one_off=(0.34, 0.8),
    fronts={"sat": (8, 10), "uiat": (1.0, 3.5)},
    larger_radii=(12,),
    single_step_radii=(6,),
    halves=(-1.0, 0.0, 1.0),
    difference=(0.5, 1.5),
)


@contextmanager
def tiny_scale() -> Iterator[Scale]:
    """Within it, `--scale smoke` is tiny."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scales.SCALES, "smoke", TINY)
        patch.setattr(timing, "FEWEST", 1)
        patch.setattr(timing, "CHEAP_SECONDS", 0.0)
        yield TINY


def fork_command(log: Path, *args: str, kill_at: str = "", stop_at: str = "") -> Fork:
    """Start a command in a fork; right after the call `kill_at` or `stop_at`, TARGET:NUMBER, it is ended."""

    def command() -> int:
        target, _, number = (kill_at or stop_at).rpartition(":")
        act = kill if kill_at else terminate
        with tiny_scale(), at_call(target, int(number), act) if target else nullcontext():
            return main(list(args))

    return fork(log, command)


def first_of(n: int, share: float) -> Tensor:
    """Return verdicts on n images of which the first ones are correct, so that sets of correct images are nested."""
    return torch.arange(n) < round(share * n)


def trained(cell: Cell, out: Path, seed: int) -> Store:
    """Write the files of a trained run."""
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


def write_timing(timing: Timing, seconds: dict[str, list[float]], out: Path) -> None:
    """Write a timing: the seconds of an epoch of each method, by repetition."""
    path = timing.file(out, torch.device("cpu"))
    path.parent.mkdir(parents=True, exist_ok=True)
    steps = {method: [value / timing.steps for value in rounds] for method, rounds in seconds.items()}
    write_json(path, {"seconds_a_step": steps})
