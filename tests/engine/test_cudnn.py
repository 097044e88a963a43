"""cuDNN benchmarks its algorithms in training on a GPU, unless determinism is requested."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.backends import cudnn

from tests.support.runs import CPU, splits, tiny
from uiat.bench import interleaved_timing
from uiat.bench.interleaved_timing import time_methods
from uiat.bench.timed_method import Phase, TimedMethod
from uiat.engine import loop
from uiat.engine.setup import cudnn_benchmark
from uiat.runs.run_folder import RunFolder

CUDA = torch.device("cuda")


@pytest.fixture
def flags() -> Iterator[None]:
    """Restore torch's settings."""
    before = (cudnn.benchmark, cudnn.deterministic)
    cudnn.benchmark, cudnn.deterministic = False, False
    yield
    cudnn.benchmark, cudnn.deterministic = before
    torch.use_deterministic_algorithms(False)


def test_on_a_gpu_alone_and_not_with_determinism(flags: None) -> None:
    def within(device: torch.device) -> bool:
        with cudnn_benchmark(device):
            chosen = bool(cudnn.benchmark)
        assert cudnn.benchmark == before
        return chosen

    before = False
    assert within(CUDA)
    assert not within(CPU)
    cudnn.deterministic = True
    assert not within(CUDA)
    cudnn.deterministic = False
    torch.use_deterministic_algorithms(True)
    assert not within(CUDA)
    cudnn.benchmark = before = True
    assert within(CUDA)
    assert within(CPU)


@pytest.fixture
def on_a_gpu(flags: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make training and benchmarks behave as on a GPU."""
    for module in (loop, interleaved_timing):
        monkeypatch.setattr(module, "cudnn_benchmark", lambda device: cudnn_benchmark(CUDA))


def test_steps_use_it_and_measurements_do_not(on_a_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation attacks fewer images as attacks succeed, so almost every epoch has batches of new shapes."""
    seen: dict[str, set[bool]] = {"train_step": set(), "accuracy": set(), "callback": set()}

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            seen[name].add(bool(cudnn.benchmark))
            return function(*args, **options)

        return call

    for name in ("train_step", "accuracy"):
        monkeypatch.setattr(loop, name, noted(name, getattr(loop, name)))
    config, listen = tiny("sat"), noted("callback", lambda moment: None)
    assert loop.train(config, RunFolder.create(tmp_path / "run", config), splits(config.data), CPU, listen)
    assert seen == {"train_step": {True}, "accuracy": {False}, "callback": {False}}
    assert not cudnn.benchmark


def test_benchmarks_use_it(on_a_gpu: None) -> None:
    seen = set()
    step = Phase(1.0, lambda: seen.add(bool(cudnn.benchmark)))
    time_methods([TimedMethod("step", (step,))], 2, CPU)
    assert seen == {True}
    assert not cudnn.benchmark
