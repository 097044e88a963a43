"""Tiny runs, and snapshots of everything that must not depend on an interruption."""

import atexit
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from torch import Tensor

from uiat import data, recipes
from uiat.attacks import PGD
from uiat.config import AnyConfig, Schedule, Training, Validation
from uiat.data.data_config import DataConfig
from uiat.engine.loop import train
from uiat.models import ResNet
from uiat.runs.run_folder import RunFolder, read_json
from uiat.targets import InstanceInverse, Momentum, OneOff

T = TypeVar("T")

CPU = torch.device("cpu")
DATA = DataConfig(name="digits", subset=72, validation=12, test_subset=40, crop=1)
"""60 training images; with batches of 16, 4 steps an epoch and a last batch of 12."""
STEPS = 4
TRAINING = Training(epochs=3, batch_size=16, schedule=Schedule(lr=0.1), log_every=3)
TINY = [
    *("--data.subset", "72", "--data.validation", "12", "--data.test-subset", "40", "--data.crop", "1", "--data.flip"),
    *("--model.width", "4", "--train.epochs", "3", "--train.batch-size", "16", "--train.schedule.lr", "0.1"),
    *("--train.log-every", "3", "--validate.steps", "2", "--device", "cpu"),
]
"""What makes a run of the digits recipes tiny, on the command line."""


def tiny(method: str = "uiat", **changes: Any) -> AnyConfig:
    """Return a run of 3 × 4 steps in which momentum begins, or the one-off epoch is, epoch 2."""
    recipe = recipes.get_recipe(f"digits-resnet8-{method}")
    plan = replace(TRAINING, select=recipe.train.select, **changes)
    watch = Validation(eps=0.2, steps=2)
    part, model = _small(recipe.method), ResNet(blocks=(1, 1), width=4)
    return replace(recipe, data=DATA, model=model, method=part, train=plan, validate=watch)


def _small(part: T) -> T:
    values = {entry.name: getattr(part, entry.name) for entry in fields(part)}  # type: ignore[arg-type]
    changes: dict[str, Any] = {name: _small(value) for name, value in values.items() if is_dataclass(value)}
    if isinstance(part, PGD):
        changes["steps"] = 2
    elif isinstance(part, InstanceInverse):
        changes["steps"] = 1
    elif isinstance(part, Momentum):
        changes["start"] = 2
    elif isinstance(part, OneOff):
        changes["epoch"] = 2
    return replace(part, **changes)  # type: ignore[type-var]


@cache
def splits(config: DataConfig = DATA) -> data.Splits:
    """Load the images once for all tests."""
    return data.load_splits(config)


def begin(config: AnyConfig, path: Path) -> RunFolder:
    """Start a run and train it to its end."""
    run = RunFolder.create(path, config)
    assert resume_run(run)
    return run


@cache
def finished(config: AnyConfig) -> RunFolder:
    """Train a run to its end, once for all tests of a process, which only read it."""
    folder = TemporaryDirectory(prefix="uiat-finished-")
    atexit.register(folder.cleanup)
    return begin(config, Path(folder.name) / "run")


@cache
def unbroken(config: AnyConfig) -> dict[str, object]:
    """Return the snapshot of an uninterrupted run."""
    return snapshot(finished(config))


def resume_run(run: RunFolder) -> bool:
    """Resume a run as the command line does, from its configuration."""
    config = run.read_config()
    return train(config, run, splits(config.data), CPU)


def load_checkpoint(run: RunFolder) -> dict[str, Any]:
    """Read a checkpoint safely, with `weights_only=True`."""
    saved = torch.load(run.checkpoint, weights_only=True)
    assert isinstance(saved, dict)
    return saved


def snapshot(run: RunFolder) -> dict[str, object]:
    """Return everything that a run wrote, except times, for comparison bit by bit."""
    checkpoint = load_checkpoint(run)
    assert checkpoint.pop("metrics_bytes") == run.metrics.stat().st_size
    assert checkpoint.pop("seconds") > 0
    del checkpoint["provenance"]  # the run's id; tests/engine/test_provenance.py reads it
    table = checkpoint.pop("table_file")  # named after the step of its last saved change
    tables = [table] if table else []
    # The previous generation keeps its own table.
    before = torch.load(run.previous, weights_only=True)["table_file"] if run.previous.exists() else None
    there = {path.name for path in run.path.glob("table-*")}
    named = {name for name in (table, before) if name}
    assert there >= named
    card = read_json(run.result)
    assert card.pop("training_seconds") >= 0
    del card["environment"]["git_commit"]  # of the source tree, which may change while the tests run
    card["resumed"] = changes_of_settings(card)
    parts: dict[str, object] = {
        "checkpoint": checkpoint,
        "table": [load_file(run.path / name) for name in tables],
        "best": load_file(run.best),
        "last": load_file(run.last),
        "averaged": [load_file(p) for p in (run.best_averaged, run.last_averaged) if p.exists()],
        "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in run.read_metrics()],
        "result": card,
        "abandoned": sorted(there - named),
        "files": sorted(
            p.name for p in run.path.iterdir() if p.name not in {*there, "data.json"}
        ),  # which the command line adds,
    }
    return dict(leaves("", parts))


def changes_of_settings(card: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what changed in resumes of a run, except the commit of the source tree."""
    changes = [{k: v for k, v in entry["changes"].items() if k != "git_commit"} for entry in card.get("resumed", [])]
    return [entry for entry in changes if entry]


def assert_same(run: RunFolder, expected: dict[str, object]) -> None:
    """Assert that a run equals the snapshot of another one."""
    assert differences(snapshot(run), expected) == []


def differences(found: dict[str, object], expected: dict[str, object], tolerance: float = 0.0) -> list[str]:
    """Return the names of the parts that differ, bit by bit or by more than the tolerance."""
    odd = sorted(found.keys() ^ expected.keys())
    return odd + [name for name in found.keys() & expected.keys() if not _near(found[name], expected[name], tolerance)]


def _near(one: object, other: object, tolerance: float) -> bool:
    if one == other or not tolerance:
        return one == other
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= tolerance
    if isinstance(one, tuple) and isinstance(other, tuple) and one[:2] == other[:2] and one[0].is_floating_point:
        ours, theirs = (torch.frombuffer(bytearray(content), dtype=one[0]) for content in (one[2], other[2]))
        return torch.allclose(ours, theirs, rtol=0, atol=tolerance, equal_nan=True)
    return False


def leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Tensor):
        yield name, (value.dtype, tuple(value.shape), value.detach().contiguous().numpy().tobytes())
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(f"{name}/{key}", item)
    elif isinstance(value, list | tuple):
        yield f"{name}/len", len(value)
        for key, item in enumerate(value):
            yield from leaves(f"{name}/{key}", item)
    else:
        yield name, value
