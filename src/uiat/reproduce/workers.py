"""Several worker processes on this machine, and how far all of them are together."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from uiat.engine.signals import STOP_FILE, StopSignal
from uiat.progress import Ticker
from uiat.reproduce.attempts import Stopped
from uiat.reproduce.budget import seconds
from uiat.reproduce.cell import Cell, Store
from uiat.runs.folder import RunFolder

CALL = "UIAT_REPRODUCE_CALL"
"""Set in a worker process: the call it works for."""
PROGRAM = "uiat"
"""The module that a worker process runs."""
LOOK_SECONDS = 0.5
GRACE_SECONDS = 120.0
"""How long workers that were asked to stop may take for their step or batch."""


def run_workers(
    args: list[str], jobs: int, cells: Sequence[Cell], out: Path, device: torch.device, stop: StopSignal, call: str
) -> None:
    """Start workers with the same command line, show how far they are, and wait for them; `Stopped` if asked to."""
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    with TemporaryDirectory() as folder, Progress(cells, out, device) as progress:
        file = Path(folder) / "stop"
        environment = {"OMP_NUM_THREADS": threads, **os.environ, STOP_FILE: str(file), CALL: call}
        workers = []
        for number in range(jobs):
            with (logs / f"worker-{number + 1}.txt").open("a", encoding="utf-8") as log:
                # A session of their own: a Ctrl-C reaches this process alone, which asks them to stop. Their input
                # ends with this process, however it ends: a worker hears that, too.
                words = [sys.executable, "-m", PROGRAM, "reproduce", *args]
                workers.append(
                    subprocess.Popen(
                        words, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                    )
                )
        while any(worker.poll() is None for worker in workers):
            time.sleep(LOOK_SECONDS)
            progress.look()
            if stop.requested:
                file.touch()
                _let_end(workers)
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.close()
    if stop.requested:
        raise Stopped


def stop_with_parent() -> None:
    """In a worker: ask for a stop, by the file, when the process that started it is gone."""

    def listen() -> None:
        sys.stdin.buffer.read()
        Path(os.environ[STOP_FILE]).parent.mkdir(exist_ok=True)
        Path(os.environ[STOP_FILE]).touch()

    threading.Thread(target=listen, daemon=True).start()


def _let_end(workers: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        try:
            worker.wait(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()  # its last checkpoint or batch is on the disk
            worker.wait()


class Progress:
    """How much of a plan is done, read from its folders, so that the work of all processes counts."""

    def __init__(self, cells: Sequence[Cell], out: Path, device: torch.device):
        costs = [seconds(cell, device) for cell in cells]
        self.stores = {Store(cell, out): cost for cell, cost in zip(cells, costs, strict=True)}
        self.done = dict.fromkeys(self.stores, 0.0)
        self.ticker = Ticker(sum(a + b for a, b in costs), "")
        self.look(free=True)

    def __enter__(self) -> "Progress":
        self.ticker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.ticker.__exit__(None, None, None)

    def look(self, *, free: bool = False) -> None:
        """Count what was done since the last look; `free` is what was there before."""
        gained = 0.0
        for store, cost in self.stores.items():
            if self.done[store] < sum(cost):
                now = work_done(store, cost)
                gained += max(0.0, now - self.done[store])
                self.done[store] = max(now, self.done[store])
        count = sum(self.done[store] >= sum(cost) for store, cost in self.stores.items())
        self.ticker.advance(gained, f"{count} of {len(self.stores)} runs", free=free)


def work_done(store: Store, cost: tuple[float, float]) -> float:
    """Return how much of a cell's cost (training, measuring) is behind it."""
    if store.finished:
        return sum(cost)
    if store.trained:
        measures = store.cell.measures
        return cost[0] + cost[1] * sum(map(store.has, measures)) / max(1, len(measures)) * 0.999
    return cost[0] * 0.999 * _epochs(store.run) / store.cell.config.train.epochs


def _epochs(run: RunFolder) -> int:
    try:
        return run.metrics.read_text(encoding="utf-8").count('"kind": "epoch"')
    except OSError:
        return 0
