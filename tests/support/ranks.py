"""Several processes of one run, as torchrun would start them."""

import os
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from tests.support import rank_child


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(world: int, module: str, *args: str) -> list[subprocess.Popen[str]]:
    """Start `python -m module args` once for each rank."""
    port = str(free_port())
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", module, *args],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


def fork_all(world: int, function: Callable[..., int | None], *args: Any) -> list[tuple[int, str]]:
    """Call a function in a fork for each rank: nothing is imported again. Return exit codes and what was said."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(rank) for rank in range(world)]
        children = [_fork({**shared, "RANK": log.name, "LOCAL_RANK": log.name}, log, function, *args) for log in logs]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        return [(code, log.read_text(encoding="utf-8")) for code, log in zip(codes, logs, strict=True)]


def _fork(variables: dict[str, str], log: Path, function: Callable[..., int | None], *args: Any) -> int:
    """Return the process that calls the function; what it writes to standard error is in the log."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.environ.update(variables)
        with log.open("w", encoding="utf-8") as file, redirect_stderr(file), redirect_stdout(StringIO()):
            try:
                code = function(*args) or 0
            except BaseException:
                traceback.print_exc()
    finally:
        os._exit(code)


def train(world: int, out: Path, names: list[str], micro_batch: int = 0) -> dict[str, Any]:
    """Train on so many processes and return what the main one saved."""
    for code, errors in fork_all(world, rank_child.main, str(out), names, micro_batch or None):
        assert code == 0, errors
    result: dict[str, Any] = torch.load(f"{out}.0", weights_only=True)
    assert result.pop("world") == {"size": world}
    return result
