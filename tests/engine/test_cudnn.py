"""When cuDNN may choose its algorithms by trial: in training on a GPU, unless determinism is asked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.backends import cudnn

from tests.support.runs import CPU, splits, tiny
from uiat.bench import interleaved_timing
from uiat.bench.interleaved_timing import time_methods
from uiat.bench.timed_method import Phase, TimedMethod
from uiat.engine import loop
from uiat.engine.callbacks import LogEvent
from uiat.engine.setup import cudnn_benchmark
from uiat.runs.run_folder import RunFolder

CUDA = torch.device("cuda")


@pytest.fixture
def flags() -> Iterator[None]:
    """Put torch's settings back."""
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


def test_training_and_benchmarks_use_it(flags: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def listen(moment: LogEvent) -> None:
        seen.append(bool(cudnn.benchmark))

    for module in (loop, interleaved_timing):
        monkeypatch.setattr(module, "cudnn_benchmark", lambda device: cudnn_benchmark(CUDA))
    config = tiny("sat")
    assert loop.train(config, RunFolder.create(tmp_path / "run", config), splits(config.data), CPU, listen)
    assert set(seen) == {True}
    step = Phase(1.0, lambda: seen.append(bool(cudnn.benchmark)))
    time_methods([TimedMethod("step", (step,))], 2, CPU)
    assert set(seen) == {True}
    assert not cudnn.benchmark
