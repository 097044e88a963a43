"""Run folders made by hand, and reading their exports in a process without `uiat`."""

import os
import runpy
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.networks import settle
from tests.support.processes import forget, fork
from tests.support.runs import tiny
from uiat.config import AnyConfig
from uiat.config_json import to_json
from uiat.io import write_json, write_tensors
from uiat.models import ModelConfig, PreActResNet, ResNet, WideResNet
from uiat.rng import generator
from uiat.runs.run_folder import RunFolder
from uiat.types import DataSpec

GREY = DataSpec(num_classes=10, num_samples=60, shape=(1, 8, 8))
COLOUR = DataSpec(num_classes=7, num_samples=60, shape=(3, 16, 16))
FAMILIES: dict[str, tuple[ModelConfig, DataSpec]] = {
    "resnet": (ResNet(blocks=(1, 2), width=4), GREY),
    "resnet-silu-normalised": (ResNet(blocks=(1, 1, 1), width=4, activation="silu", normalize=True), COLOUR),
    "preact-activated": (PreActResNet(blocks=(1, 1), width=4, shortcut="activated"), COLOUR),
    "preact-wide": (
        PreActResNet(
            blocks=(1, 1), width=4, shortcut="raw-3x3", norm_momentum=0.01, normalize=True, statistics="cifar100"
        ),
        COLOUR,
    ),
    "preact-raw": (PreActResNet(blocks=(2, 1), width=4, shortcut="raw", normalize=True), GREY),
    "wrn": (WideResNet(depth=10, widen=1), COLOUR),
    "wrn-silu-normalised": (WideResNet(depth=16, widen=1, activation="silu", normalize=True), GREY),
}


def images(data: DataSpec) -> Tensor:
    """Return the images that two copies of a network are compared on."""
    return torch.rand((5, *data.shape), generator=generator(0, "images"))


def configure(model: ModelConfig) -> AnyConfig:
    return replace(tiny("uiat"), model=model)


def make_run(path: Path, model: ModelConfig, spec: DataSpec, **changes: Any) -> tuple[RunFolder, Tensor]:
    """Create a run folder, and return it with the logits of its best weights, which differ from the last ones."""
    config = configure(model)
    run = RunFolder.create(path, config)
    torch.manual_seed(0)
    network = settle(model.build(spec), images(spec))
    with torch.no_grad():
        logits: Tensor = network(images(spec))
    write_tensors(run.best, network.state_dict())
    write_tensors(run.last, settle(network, images(spec)).state_dict())
    facts = {"classes": [f"class {k}" for k in range(spec.num_classes)], "shape": list(spec.shape)}
    counts = {"train": spec.num_samples, "validation": 12, "test": 40}
    card = {"schema": 1, "config": to_json(config), "data": {"name": "digits", **facts, **counts}}
    write_json(run.result, {**card, "evaluations": [], **changes})
    return run, logits


READER = Path(__file__).with_name("export_reader.py")


def read_logits(folders: dict[Path, Tensor], *, isolated: bool = False) -> list[Tensor]:
    """Return the logits of the exports in these folders for the images given with each.

    They are computed in a fork that has forgotten `uiat`, or in an isolated interpreter.
    """
    for folder, x in folders.items():
        save_file({"x": x}, folder / "x.safetensors")
    if isolated:
        _read_isolated(folders)
    else:
        code, output = fork(next(iter(folders)) / "log.txt", _read_without_uiat, list(map(str, folders))).end()
        assert code == 0, output
    return [load_file(folder / "logits.safetensors")["logits"] for folder in folders]


def _read_without_uiat(folders: list[str]) -> None:
    forget("uiat")
    runpy.run_path(str(READER))["main"](folders)


def _read_isolated(folders: Iterable[Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(READER), *map(str, folders)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
