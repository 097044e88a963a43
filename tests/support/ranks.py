"""Several processes of one run, as torchrun would start them."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch


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


def train(world: int, out: Path, names: list[str], micro_batch: int = 0) -> dict[str, Any]:
    """Run the child on so many processes and return what the main one saved."""
    for process in start(world, "tests.support.rank_child", str(out), str(micro_batch), ",".join(names)):
        _, errors = process.communicate(timeout=1800)
        assert process.returncode == 0, errors
    result: dict[str, Any] = torch.load(f"{out}.0", weights_only=True)
    assert result.pop("world") == {"size": world}
    return result
