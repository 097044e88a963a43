"""Worker processes on this machine, and jobs on a Slurm cluster (with submitit, an optional extra)."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from uiat.config_json import encode, from_json, to_json
from uiat.distributed import pick_device
from uiat.engine.signals import GRACE_SECONDS, StopSignal, python_module, start_child, stop_file
from uiat.errors import UserError
from uiat.io import write_json
from uiat.reproduce.budget import PlanProgress
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import Attacked, Curve, Inverse, Watch
from uiat.reproduce.runner import Runner, Stopped
from uiat.runs.run_folder import read_json

PLAN = "UIAT_REPRODUCE_PLAN"
"""Set in a worker process: the file with the runs that it makes, and the options of the command it works for."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The GPUs that a process may use, by number or UUID."""
PROGRESS_SECONDS = 0.5


def worker_gpus(device: torch.device) -> list[str]:
    """Return the visible GPUs, as CUDA_VISIBLE_DEVICES names them; none on a CPU, or where `device` is one of them."""
    if device.type != "cuda" or device.index is not None:
        return []
    count, names = torch.cuda.device_count(), os.environ.get(VISIBLE)
    # CUDA ignores what follows the first entry that names no GPU.
    return [str(k) for k in range(count)] if names is None else [name.strip() for name in names.split(",")][:count]


def run_workers(runner: Runner, cells: Sequence[Cell], jobs: int, import_arguments: Sequence[str]) -> None:
    """Start workers for the cells, show their progress, and wait for them; `Stopped` after a stop.

    Each worker sees one GPU; with more workers than GPUs, several share one.
    """
    logs, stop = runner.out / "logs", runner.stop
    logs.mkdir(parents=True, exist_ok=True)
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    with stop_file() as file, PlanProgress(cells, runner.out, runner.device) as progress:
        plan = file.with_name("plan.json")
        options = {"out": str(runner.out), "device": str(runner.device), "data_dir": runner.data_dir}
        parts = [{"config": to_json(c.config), "measures": encode(c.measures), "watch": encode(c.watch)} for c in cells]
        write_json(plan, {**options, "call": runner.call, "cells": parts})
        environment = {"OMP_NUM_THREADS": threads, **os.environ, PLAN: str(plan)}
        command = python_module("uiat", "reproduce", *import_arguments)
        workers, gpus = [], worker_gpus(runner.device)
        for number in range(jobs):
            if gpus:
                environment[VISIBLE] = gpus[number % len(gpus)]
            with (logs / f"worker-{number + 1}.txt").open("a", encoding="utf-8") as log:
                workers.append(start_child(command, file, environment, stdout=log, stderr=log))
        while any(worker.poll() is None for worker in workers):
            time.sleep(PROGRESS_SECONDS)
            progress.look()
            if stop.requested:
                file.touch()
                _await_exit(workers)
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.close()
    if stop.requested:
        raise Stopped


def read_plan(plan: Path, stop: StopSignal, say: Callable[[str], None]) -> tuple[Runner, list[Cell]]:
    """Return what the parent of a worker process has written: a runner with its options, and the cells."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (Attacked, Curve, Inverse, Watch)}

    def decode(part: dict[str, Any]) -> Any:
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in part.items() if name != "kind"}
        return kinds[part["kind"]](**values)

    saved = read_json(plan)
    cells = [
        Cell(from_json(c["config"]), tuple(map(decode, c["measures"])), c["watch"] and decode(c["watch"]))
        for c in saved["cells"]
    ]
    out, device = Path(saved["out"]), pick_device(saved["device"])
    return Runner(out, device, saved["data_dir"], stop, say, saved["call"]), cells


def _await_exit(workers: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        try:
            worker.wait(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()  # its last checkpoint or batch is saved
            worker.wait()


class SlurmJob:
    """The command of one run. When its time limit ends it, submitit submits it again, and the run resumes."""

    def __init__(self, arguments: list[str], cell: Cell, out: Path):
        self.arguments, self.cell, self.out = arguments, cell, out

    def __call__(self) -> int:
        """Run the command; the job fails if the command does, or is stopped before its run is finished."""
        subprocess.run(python_module(*self.arguments), check=True)
        if not Store(self.cell, self.out).finished:
            raise RuntimeError(f"{self.cell.name} is not finished: submit again to resume")
        return 0

    def checkpoint(self) -> Any:
        """Submit the same command again: all progress of the run is saved."""
        import submitit

        return submitit.helpers.DelayedSubmission(SlurmJob(self.arguments, self.cell, self.out))


def submit(cells: Sequence[Cell], out: Path, command: list[str], parameters: Sequence[str]) -> list[str]:
    """Submit a job of Slurm for each cell, and return their names.

    `parameters` are submitit's, such as `timeout_min=600 slurm_partition=gpu`; integers are converted.
    """
    try:
        import submitit
    except ImportError:
        raise UserError("--submit slurm needs submitit: pip install submitit.") from None
    if not cells:
        return []
    folder = out / "submitted"
    folder.mkdir(parents=True, exist_ok=True)
    given = dict(parameter.split("=", 1) for parameter in parameters)
    values = {name: int(value) if value.isdigit() else value for name, value in given.items()}
    try:
        executor = submitit.AutoExecutor(folder=str(folder), cluster="slurm")
        executor.update_parameters(**{"name": "uiat", **values})
        with executor.batch():
            jobs = [executor.submit(SlurmJob([*command, "--cell", cell.key], cell, out)) for cell in cells]
    except (RuntimeError, NameError, ValueError, TypeError) as error:
        raise UserError(f"submitit could not submit to 'slurm': {error}.") from None
    return [str(job.job_id) for job in jobs]
