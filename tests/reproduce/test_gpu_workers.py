"""Which GPU each worker of `uiat reproduce` sees, and the number of workers; torch.cuda is mocked."""

import io
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from uiat.cli import reproduce
from uiat.cli.reproduce_job import Job, Reproduce, plan_job
from uiat.engine.signals import StopSignal
from uiat.reproduce import workers
from uiat.reproduce.cell import Cell, merge
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.measures import measure_key
from uiat.reproduce.runner import Runner
from uiat.reproduce.scales import SCALES

CUDA = torch.device("cuda")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str | None], None]:
    """Make torch report this many GPUs, with CUDA_VISIBLE_DEVICES set or not."""

    def see(count: int, visible: str | None) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return see


@pytest.mark.parametrize(
    ("device", "count", "visible", "seen"),
    [
        ("cuda", 3, None, ["0", "1", "2", "0"]),
        ("cuda", 2, "5,3", ["5", "3", "5", "3"]),
        ("cuda", 2, "GPU-8f1c, MIG-77aa", ["GPU-8f1c", "MIG-77aa", "GPU-8f1c", "MIG-77aa"]),
        ("cuda", 1, "4,-1,5", ["4", "4", "4", "4"]),
        ("cuda:1", 3, None, [None] * 4),
        ("cuda:1", 2, "5,3", ["5,3"] * 4),
        ("cpu", 0, None, [None] * 4),
    ],
)
def test_workers_take_gpus_in_turns(
    device: str,
    count: int,
    visible: str | None,
    seen: list[str | None],
    gpus: Callable[[int, str | None], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    found: list[str | None] = []

    def start(args: list[str], *, env: dict[str, str], **_: Any) -> SimpleNamespace:
        found.append(env.get("CUDA_VISIBLE_DEVICES"))
        return SimpleNamespace(poll=lambda: 0, stdin=io.BytesIO())

    gpus(count, visible)
    monkeypatch.setattr("uiat.reproduce.workers.subprocess.Popen", start)
    with StopSignal() as stop:
        workers.run_workers(Runner(tmp_path, torch.device(device), None, stop, print), (), 4, ())
    assert found == seen


@pytest.mark.parametrize(
    ("device", "count", "given", "jobs"), [("cuda", 8, None, 8), ("cuda", 8, 3, 3), ("cuda:1", 8, None, 1)]
)
def test_a_worker_for_each_gpu(
    device: str,
    count: int,
    given: int | None,
    jobs: int,
    gpus: Callable[[int, str | None], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    started: list[int] = []
    gpus(count, None)
    monkeypatch.setattr("uiat.cli.reproduce_job.pick_device", torch.device)
    monkeypatch.setattr(reproduce, "run_workers", lambda runner, cells, number, _: started.append(number))
    job: Job = plan_job(Reproduce(("table6",), only=("uiat",), out=str(tmp_path), device=device, jobs=given))
    with StopSignal() as stop:
        reproduce.make(job, stop)
    assert started == [jobs]


def read_back(monkeypatch: pytest.MonkeyPatch, runner: Runner, cells: list[Cell]) -> tuple[Runner, list[Cell]]:
    """Return the plan that a worker receives from its parent."""
    found: list[tuple[Runner, list[Cell]]] = []

    def start(args: list[str], *, env: dict[str, str], **_: Any) -> SimpleNamespace:
        assert args[2:] == ["-m", "uiat", "reproduce", "--import", "mine"]
        found.append(workers.read_plan(Path(env[workers.PLAN]), runner.stop, print))
        return SimpleNamespace(poll=lambda: 0, stdin=io.BytesIO())

    monkeypatch.setattr("uiat.reproduce.workers.subprocess.Popen", start)
    monkeypatch.setattr(workers, "PlanProgress", lambda *_: nullcontext(SimpleNamespace(look=lambda: None)))
    workers.run_workers(runner, cells, 1, ["--import", "mine"])
    return found[0]


@pytest.mark.parametrize("scale", SCALES)
def test_a_worker_gets_the_runs_that_were_planned(scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of every table and figure: the same key, and the same measurements with the same files."""
    cells = merge(cell for build in EXPERIMENTS.values() for cell in build(SCALES[scale]).cells(2))
    with StopSignal() as stop:
        runner = Runner(tmp_path, torch.device("cpu"), "data", stop, print)
        found, same = read_back(monkeypatch, runner, cells)
    assert found == runner
    assert same == cells
    assert [cell.key for cell in same] == [cell.key for cell in cells]
    assert [list(map(measure_key, cell.measures)) for cell in same] == [
        list(map(measure_key, cell.measures)) for cell in cells
    ]
