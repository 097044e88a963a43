"""The smoke scale made tiny: the same experiments, runs of a fraction of a second."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.support.processes import ROOT
from uiat.attacks import PGD
from uiat.config import AnyConfig
from uiat.models import ResNet
from uiat.recipes.paper import as_single_step
from uiat.reproduce import scales, timing, workers
from uiat.reproduce.measures import Watch
from uiat.reproduce.scale import Scale
from uiat.reproduce.stand_in import stand_in_name
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
    halves=(-1.0, 0.0, 1.0),
    difference=(0.5, 1.5),
)


@contextmanager
def tiny_scale() -> Iterator[Scale]:
    """Within it, `--scale smoke` is tiny, in this process and in its workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scales.SCALES, "smoke", TINY)
        patch.setattr(timing, "FEWEST", 1)
        patch.setattr(timing, "CHEAP_SECONDS", 0.0)
        patch.setattr(workers, "PROGRAM", "tests.support.reproduce_child")
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)  # workers do not look in the current folder
        yield TINY
