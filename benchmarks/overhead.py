"""Overhead of training: the time between steps, and the time until the first step.

    python benchmarks/overhead.py [--rounds 5] [--threads 1] [--recipe digits-resnet8-uiat] [--data-dir DIR] [--json F]

The gaps: from the end of a step to the beginning of the next within an epoch (next batch, crop, flip, metrics, log,
progress), as a share of the steps, for the small CIFAR recipe's network and augmentation on noise. The start: from the
start of a process that trains a recipe to its first step, against one that only imports torch, in turns.
"""

import importlib
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import tyro

from uiat import recipes
from uiat.data import Splits
from uiat.data.images import Images
from uiat.io import write_json
from uiat.runs.result_card import environment
from uiat.runs.run_folder import RunFolder

loop: Any = importlib.import_module("uiat.engine.loop")

TORCH = "import sys, time; import torch; print(time.monotonic() - float(sys.argv[1]))"
TRAIN = """
import os, sys, time
began = float(sys.argv[1])
from uiat.cli import main
def first(*args, **kwargs):
    print(time.monotonic() - began, flush=True)
    os._exit(0)
import uiat.engine.loop as loop
loop.train_step = first
main(["train", sys.argv[3], "--out", sys.argv[2], *sys.argv[4:]])
"""


def noise(count: int, seed: int) -> Images:
    """Return noise with the shape of the images of CIFAR-10's small recipe."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (count, 3, 16, 16), dtype=torch.uint8, generator=g)
    return Images(x, torch.randint(0, 10, (count,), generator=g), tuple("0123456789"))


def gaps(method: str, folder: Path) -> float:
    """Train an epoch; return the time between its steps divided by the time of its steps."""
    recipe = recipes.get_recipe(f"cifar10-resnet8-{method}")
    config = replace(recipe, train=replace(recipe.train, epochs=1, log_every=10))
    steps: list[tuple[float, float]] = []
    original = loop.train_step

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        found = original(*args, **kwargs)
        steps.append((began, time.perf_counter()))
        return found

    loop.train_step = timed
    try:
        splits = Splits(noise(40 * config.train.batch_size, 0), noise(64, 1), noise(64, 2))
        loop.train(config, RunFolder.create(folder, config), splits, torch.device("cpu"))
    finally:
        loop.train_step = original
    kept = steps[5:]  # the first ones warm up
    between = sum(after[0] - before[1] for before, after in pairwise(kept))
    return between / sum(end - began for began, end in kept)


def start_up(rounds: int, command: list[str]) -> dict[str, list[float]]:
    """Return the seconds until torch is imported, and until the first step, in turns."""
    found: dict[str, list[float]] = {"import torch": [], "first step": []}
    with TemporaryDirectory() as folder:
        for number in range(-1, rounds):
            for name, program in (("import torch", TORCH), ("first step", TRAIN)):
                arguments = [str(time.monotonic()), str(Path(folder) / f"run{number}"), *command]
                done = subprocess.run(
                    [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
                )
                if number >= 0:  # the first turn fills the disk's cache
                    found[name].append(float(done.stdout.split()[-1]))
    return found


def main(
    rounds: int = 5,
    threads: int = 1,
    recipe: str = "digits-resnet8-uiat",
    data_dir: str | None = None,
    json: Path | None = None,
) -> None:
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of the processes that this one starts
    with TemporaryDirectory() as folder:
        shares = {m: [gaps(m, Path(folder) / f"{m}{k}") for k in range(rounds)] for m in ("sat", "uiat")}
    for method, values in shares.items():
        print(f"{method}: {statistics.median(values):.2%} of the steps' time lies between them")
    command = [recipe, *(["--data-dir", data_dir] if data_dir else [])]
    times = start_up(rounds, command)
    beyond = [b - a for a, b in zip(times["import torch"], times["first step"], strict=True)]
    print(f"{recipe}: first step {statistics.median(beyond):.2f} s after torch is imported ({beyond})")
    if json is not None:
        write_json(json, {"gaps": shares, "start": times, "environment": environment("cpu")})


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
