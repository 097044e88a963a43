"""What a run left, and how far two of them are apart."""

from collections.abc import Iterator
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from uiat.runs.run_folder import RunFolder, read_json


def final_state(run: RunFolder) -> dict[str, Any]:
    """Return all that a run left, but for the times."""
    saved = torch.load(run.checkpoint, weights_only=True)
    table = saved["table_file"]
    # Tables are compared themselves; the provenance has the run's id.
    for name in ("metrics_bytes", "seconds", "table_file", "table_sha256", "provenance"):
        saved.pop(name)
    card = {k: v for k, v in read_json(run.result).items() if k not in ("training_seconds", "resumed")}
    metrics = [{k: v for k, v in line.items() if k != "seconds"} for line in run.read_metrics()]
    parts = {
        "checkpoint": saved,
        "table": load_file(run.path / table) if table else {},
        "best": load_file(run.best),
        "last": load_file(run.last),
        "metrics": metrics,
        "card": card,
    }
    assert not list(run.path.glob(".checkpoint*.tmp")), "a temporary file is left"
    return dict(_leaves("", parts))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{name}/{key}", item)
    elif isinstance(value, list | tuple):
        for key, item in enumerate(value):
            yield from _leaves(f"{name}/{key}", item)
    else:
        yield name, value


def differences(found: dict[str, Any], expected: dict[str, Any], tolerance: float = 0.0) -> list[str]:
    """Return the names of the parts that differ: in a bit, or by more than the tolerance."""
    odd = sorted(found.keys() ^ expected.keys())
    return odd + [name for name in expected if name in found and not _same(found[name], expected[name], tolerance)]


def _same(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if not tolerance or not one.is_floating_point():
            return one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes()
        return bool(torch.allclose(one, other, rtol=0, atol=tolerance, equal_nan=True))
    if isinstance(one, float) and isinstance(other, float):
        return bool(abs(one - other) <= tolerance)
    return bool(one == other)
