"""Stand-ins for generated images at the smoke scale: training digits, shifted and with noise."""

import hashlib
import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from uiat import data
from uiat.config_json import encode
from uiat.data import data_folder
from uiat.data.data_config import DataConfig, Generated
from uiat.io import atomic
from uiat.rng import generator

STAND_IN_PREFIX = "digits_stand_in"
STAND_IN_IMAGES = 2000
SHIFT, NOISE = 1, 24
"""The largest shift in pixels, and the largest noise in levels of 255."""
STAND_IN_SEED = 0


def stand_in_name(config: DataConfig) -> str:
    """Return the file's name, with a digest of all that determines its content."""
    facts = {
        "count": STAND_IN_IMAGES,
        "shift": SHIFT,
        "noise": NOISE,
        "seed": STAND_IN_SEED,
        "data": encode(_originals(config), key=True),
    }
    return f"{STAND_IN_PREFIX}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]}.npz"


def _originals(config: DataConfig) -> DataConfig:
    return replace(config, generated=Generated())


def ensure_generated(config: DataConfig, data_dir: str | None) -> None:
    """Write the stand-in into the data folder, if the run needs it and it is missing; always the same bytes."""
    name = config.generated.file
    path = data_folder(data_dir) / name
    if name != stand_in_name(config) or path.exists():
        return
    images = data.load_splits(_originals(config), data_dir).train
    key = generator(STAND_IN_SEED, "stand-in")
    chosen = torch.randint(len(images), (STAND_IN_IMAGES,), generator=key)
    across, down = torch.randint(-SHIFT, SHIFT + 1, (2, STAND_IN_IMAGES), generator=key).tolist()
    moved = [torch.roll(x, (d, a), (1, 2)) for x, d, a in zip(images.x[chosen], down, across, strict=True)]
    noise = torch.randint(-NOISE, NOISE + 1, (STAND_IN_IMAGES, *images.x.shape[1:]), generator=key)
    x = (torch.stack(moved).int() + noise).clamp(0, 255).to(torch.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), atomic(path, exclusive=True) as temporary, temporary.open("wb") as file:
        np.savez(file, image=x.numpy(), label=images.y[chosen].numpy())
