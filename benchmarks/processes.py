"""Throughput of training on two processes against one, each process with a single thread.

    python benchmarks/processes.py [--rounds 5] [--steps 12] [--batch 128] [--json FILE]

Rounds alternate between one and two processes; the result is the median of the rounds' ratios. UIAT, PGD-10, a ResNet
of width 16 with three stages at 16×16 as in `uiat train` (folded, channels_last), one gloo process per core.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import tyro

from uiat.config import AnyConfig, Config, Training
from uiat.data.data_config import DataConfig
from uiat.data.images import Images
from uiat.data.loader import Loader
from uiat.distributed import process_group, wait
from uiat.engine.setup import build_state
from uiat.engine.step import train_step
from uiat.io import write_json
from uiat.methods import UIAT
from uiat.models import ResNet
from uiat.runs.result_card import environment
from uiat.types import Clock


def measure(steps: int, batch: int) -> None:
    """Train a few steps in this process and print the images a second of all of them."""
    torch.set_num_threads(1)
    with process_group(torch.device("cpu")):
        g = torch.Generator().manual_seed(0)
        x = torch.randint(0, 256, (batch * (steps + 2), 3, 16, 16), dtype=torch.uint8, generator=g)
        images = Images(x, torch.arange(len(x)) % 10, tuple("0123456789"))
        config: AnyConfig = Config(DataConfig(), ResNet(blocks=(1, 1, 1), width=16), UIAT(), Training())
        state = build_state(config, images.spec, torch.device("cpu"), None)
        began = 0.0
        for step, part in Loader(images, batch, seed=0, crop=2, flip=True).epoch(1):
            if step == 2:
                wait()
                began = time.perf_counter()
            assert train_step(state, part, Clock(1, step, 100), lr=0.01) is None
        wait()
        print(batch * steps / (time.perf_counter() - began))


def run(world: int, steps: int, batch: int) -> float:
    """Return the images a second of so many processes, by the slowest."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    command = [*torchrun, __file__, "--steps", str(steps), "--batch", str(batch)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return min(map(float, done.stdout.split()))


def main(rounds: int = 5, steps: int = 12, batch: int = 128, json: Path | None = None) -> None:
    if torch.distributed.is_torchelastic_launched():  # in a process that `run` has started
        measure(steps, batch)
        return
    pairs = [tuple(run(world, steps, batch) for world in (1, 2)) for _ in range(rounds)]
    ratio = statistics.median(two / one for one, two in pairs)
    print(f"two processes: {ratio:.2f} times the images a second of one (median of {rounds}, batch {batch})")
    if json is not None:
        write_json(json, {"ratio": ratio, "pairs": pairs, "environment": environment("cpu")})


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
