"""A million generated images are not held in memory.

`python -m tests.data.test_million ORIGINALS GENERATED STEPS` makes a few steps of UIAT, without and with the generated
images. It prints JSON: the seconds from the file to the first batch, and how far resident memory grew (MB).
"""

import json
import os
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.processes import finish, spawn
from uiat import UIAT, data
from uiat.attacks import PGD
from uiat.config import AnyConfig, Config, Training, Validation
from uiat.data.data_config import DataConfig, Generated
from uiat.engine.setup import build_loader, build_state
from uiat.engine.step import train_step
from uiat.models import ResNet
from uiat.targets import Momentum
from uiat.types import Clock


def resident() -> float:
    """Return the resident memory of this process, the pages of mapped files included, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmRSS:"))) / 1024


def run(config: AnyConfig, steps: int) -> dict[str, float]:
    """Load the data and make the steps."""
    began = time.process_time()
    splits = data.load_splits(config.data, training=True)
    cpu = torch.device("cpu")
    state = build_state(config, splits.spec, cpu, None)
    loader = build_loader(config, splits.train, cpu, splits.generated)
    start, made = 0.0, 0
    for epoch in range(1, 1 + steps):
        for step, batch in loader.epoch(epoch):
            start = start or time.process_time() - began
            assert batch.index is not None
            ours = int((batch.index < len(splits.train)).sum())
            assert splits.generated is None or ours == round(0.3 * len(batch))
            assert train_step(state, batch, Clock(epoch, step, steps), lr=0.01) is None
            made += 1
            if made == steps:
                return {"start": start, "resident": resident(), "samples": splits.spec.num_samples}
    raise AssertionError


def main(originals: str, generated: str, steps: int) -> None:
    """Train without, then with generated images, and compare."""
    torch.set_num_threads(1)
    method = UIAT(attack=PGD(steps=1), momentum=Momentum(start=1))
    images = DataConfig(name=originals, test=originals, validation=10)
    plan = Training(epochs=steps, batch_size=128)
    config: AnyConfig = Config(images, ResNet(blocks=(1, 1), width=2), method, plan, Validation())
    without = run(config, steps)
    found = run(replace(config, data=replace(images, generated=Generated(generated))), steps)
    growth = found["resident"] - without["resident"]
    print(json.dumps({"start": found["start"], "growth": growth, "samples": found["samples"]}))


pytestmark = pytest.mark.skipif(
    not hasattr(os, "posix_fadvise") or not Path("/proc/self/status").exists(),
    reason="where the system keeps what was just unpacked, mapped pages count as memory of the process",
)


def zeros_npz(path: Path, count: int, classes: int = 10, shape: tuple[int, int, int] = (32, 32, 3)) -> Path:
    """Write a small, compressed file of many mostly black images, without holding them in memory."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("image.npy", "w", force_zip64=True) as file:
            facts = {"descr": "|u1", "fortran_order": False, "shape": (count, *shape)}
            np.lib.format.write_array_header_1_0(file, facts)
            size = int(np.prod(shape)) * 1000
            some = os.urandom(size // 50) + bytes(size - size // 50)  # so that it is not refused as a bomb
            for _ in range(count // 1000):
                file.write(some)
        with archive.open("label.npy", "w") as file:
            np.save(file, np.arange(count) % classes)
    return path


def measure(folder: Path, count: int, steps: int) -> dict[str, float]:
    g = np.random.default_rng(0)
    image = g.integers(0, 256, (600, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "originals.npz", image=image, label=np.arange(600) % 10)
    generated = zeros_npz(folder / "generated.npz", count)
    files = [str(folder / "originals.npz"), str(generated), str(steps)]
    code, out, err = finish(spawn("tests.data.test_million", *files, UIAT_DATA=str(folder)))
    assert code == 0, err
    found: dict[str, float] = json.loads(out)
    assert found["samples"] == 590 + count
    return found


def test_fifty_thousand(tmp_path: Path) -> None:
    """150 MB of pixels. Measured growth: less than 10 MB, of which the table of p is 2."""
    found = measure(tmp_path, 50_000, steps=2)
    assert found["growth"] < 60
    assert found["start"] < 20


@pytest.mark.slow
def test_a_million(tmp_path: Path) -> None:
    """3 GB of pixels. Measured growth: about 90 MB, of which the table of p is 41."""
    found = measure(tmp_path, 1_000_000, steps=30)
    assert found["growth"] < 500
    assert found["start"] < 60


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
