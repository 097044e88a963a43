"""A few steps of UIAT with many generated images: `python -m tests.support.million ORIGINALS GENERATED STEPS`.

Prints JSON: the seconds from the file to the first batch, and how far resident memory grew (MB) until the steps were
made, against the same steps without generated images.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

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


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
