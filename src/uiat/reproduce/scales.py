"""The three scales: `smoke` (digits), `cpu` (a part of CIFAR-10 at 16×16) and `paper` (A.2 of the paper)."""

import hashlib
import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from uiat import data, methods, recipes
from uiat.config import AnyConfig, Schedule
from uiat.config_json import encode
from uiat.data import data_folder
from uiat.data.data_config import DataConfig, Generated
from uiat.io import atomic
from uiat.methods import IAT, UIAT
from uiat.models import MODELS, ModelConfig, PreActResNet, ResNet, WideResNet
from uiat.recipes import small
from uiat.recipes.paper import as_single_step
from uiat.recipes.variants import at_radius, change_method
from uiat.reproduce.measures import Watch
from uiat.reproduce.scale import PAPER_EPS, Scale
from uiat.rng import generator

# --- paper: A.2 of the paper, from the recipes ---

PAPER_DATA = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "SVHN": "svhn"}
_NETWORKS = {"ResNet-18": "resnet18", "WRN-28": "wrn-28-10", "WRN-34": "wrn-34-10"}


def paper(method: str, data: str, network: str) -> AnyConfig:
    """Return the recipe of A.2."""
    return recipes.get_recipe(f"{PAPER_DATA[data]}-{_NETWORKS[network]}-{method}")


# --- cpu: 3,000 images of CIFAR-10 at 16×16 (Table 1: and of CIFAR-100 with its 20 coarse classes), mirrored but
# not cropped, so that a small network fits them under attack and overfits as the paper's does (docs/log.md) ---

_SMALL: dict[str, ModelConfig] = {
    "ResNet-18": ResNet(blocks=(1, 1, 1), width=24),
    "WRN-28": MODELS["wrn-10-1"],
    "WRN-34": WideResNet(depth=16, widen=1),
}
TUNED: dict[str, dict[str, float]] = {
    method: {"lr": 0.2} for method in ("sat", "mart", "hat", "iat", "uiat", "uiat-oneoff")
}
"""`Scale.tuned` of this scale."""


def cpu(method: str, data: str, network: str) -> AnyConfig:
    """Return a run on a part of CIFAR-10 or, for CIFAR-100, of its images with coarse labels."""
    config, name = small.cifar10_small(method), "cifar100-coarse" if data == "CIFAR-100" else "cifar10"
    return replace(
        config,
        method=at_radius(methods.get_method(method), PAPER_EPS),  # with the paper's weights, unlike the recipe
        data=replace(config.data, name=name, crop=0, subset=3_500, validation=500, test_subset=None),
        model=_SMALL[network],
        train=replace(config.train, epochs=24, batch_size=50, schedule=Schedule(lr=0.1), log_every=0),
        validate=replace(config.validate, steps=10),
    )


# --- smoke: digits and the smallest network, so that all experiments take minutes ---

_TINY: dict[str, ModelConfig] = {
    "ResNet-18": ResNet(blocks=(1, 1), width=8),
    "WRN-28": ResNet(blocks=(1, 1), width=12),
    "WRN-34": ResNet(blocks=(1, 1, 1), width=8),
}
SMOKE_EPOCHS = 8
SMOKE_EPS = 0.1
"""Small enough that twice this radius (Table 3's 16/255) can still be learned in few epochs."""


def smoke(method: str, data: str, network: str) -> AnyConfig:
    """Return a run on digits."""
    config = small.digits(method)
    return replace(
        config,
        model=_TINY[network],
        method=at_radius(methods.get_method(method), SMOKE_EPS),
        data=replace(config.data, subset=800, validation=80),
        train=replace(config.train, epochs=SMOKE_EPOCHS, schedule=Schedule(lr=0.2), weight_decay=5e-4, log_every=0),
        validate=replace(config.validate, steps=10, eps=SMOKE_EPS if method == "natural" else None),
    )


# --- Table 4: its recipes, and small relatives of them ---

_GENERATED_NETWORKS = {"PRN-18": "preactresnet18", "WRN-28-10": "wrn-28-10"}
_RELATIVES: dict[str, ModelConfig] = {
    "PRN-18": PreActResNet(blocks=(1, 1, 1), width=16, activation="silu", normalize=True),
    "WRN-28-10": WideResNet(depth=10, widen=1, activation="silu", normalize=True),
}


def _paper_generated(method: str, data: str, network: str) -> AnyConfig:
    return recipes.get_recipe(f"{PAPER_DATA[data]}-ddpm-{_GENERATED_NETWORKS[network]}-{method}")


def _cpu_generated(method: str, data: str, network: str) -> AnyConfig | None:
    if data != "CIFAR-10":
        return None
    config, size = _paper_generated(method, data, network), cpu(method, data, "ResNet-18")
    images = replace(size.data, generated=config.data.generated)
    run = replace(config, data=images, model=_RELATIVES[network])
    return _fewer_epochs(run, size.train.epochs, batch_size=size.train.batch_size)


def smoke_generated(method: str, data: str, network: str) -> AnyConfig | None:
    """Return a run on digits with stand-ins for generated ones."""
    if (data, network) != ("CIFAR-10", "PRN-18"):
        return None
    config, size = _paper_generated(method, data, network), smoke(method, data, "ResNet-18")
    images = replace(size.data, generated=Generated(stand_in_name(size.data), 0.3))
    model = PreActResNet(blocks=(1, 1), width=8, activation="silu", normalize=True)
    run = replace(config, data=images, model=model, method=at_radius(config.method, SMOKE_EPS), validate=size.validate)
    return _fewer_epochs(run, SMOKE_EPOCHS, batch_size=size.train.batch_size)


def _fewer_epochs(config: AnyConfig, epochs: int, *, batch_size: int) -> AnyConfig:
    """Return a run of so many epochs, with everything that counts epochs in proportion."""
    before, method = config.train.epochs, config.method
    train = replace(config.train, epochs=epochs, batch_size=batch_size, log_every=0)
    if isinstance(method, IAT | UIAT):
        config = change_method(config, "momentum", start=method.momentum.start / before)
    if method.helper_epochs:
        config = change_method(config, None, helper_epochs=max(1, method.helper_epochs * epochs // before))
    return replace(config, train=train)


# --- stand-ins for generated images at the smoke scale: training digits, shifted and with noise ---

STAND_IN_IMAGES = 2000
SHIFT, NOISE = 1, 24
"""The largest shift in pixels, and the largest noise in levels of 255."""
STAND_IN_SEED = 0


def stand_in_name(config: DataConfig) -> str:
    """Return the file's name, with a digest of all that determines its content."""
    facts = {"count": STAND_IN_IMAGES, "shift": SHIFT, "noise": NOISE, "seed": STAND_IN_SEED}
    text = json.dumps({**facts, "data": encode(replace(config, generated=Generated()), key=True)}, sort_keys=True)
    return f"digits_stand_in-{hashlib.sha256(text.encode()).hexdigest()[:8]}.npz"


def ensure_generated(config: DataConfig, data_dir: str | None) -> None:
    """Write the stand-in into the data folder, if the run needs it and it is missing; always the same bytes."""
    name = config.generated.file
    path = data_folder(data_dir) / name
    if name != stand_in_name(config) or path.exists():
        return
    images = data.load_splits(replace(config, generated=Generated()), data_dir).train
    key = generator(STAND_IN_SEED, "stand-in")
    chosen = torch.randint(len(images), (STAND_IN_IMAGES,), generator=key)
    across, down = torch.randint(-SHIFT, SHIFT + 1, (2, STAND_IN_IMAGES), generator=key).tolist()
    moved = [torch.roll(x, (d, a), (1, 2)) for x, d, a in zip(images.x[chosen], down, across, strict=True)]
    noise = torch.randint(-NOISE, NOISE + 1, (STAND_IN_IMAGES, *images.x.shape[1:]), generator=key)
    x = (torch.stack(moved).int() + noise).clamp(0, 255).to(torch.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), atomic(path, exclusive=True) as temporary, temporary.open("wb") as file:
        np.savez(file, image=x.numpy(), label=images.y[chosen].numpy())


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        "smoke",
        "smoke: digits",
        smoke,
        lambda method: as_single_step(smoke(method, "CIFAR-10", "ResNet-18")),
        smoke_generated,
        data={"CIFAR-10": "smoke: digits"},
        networks={
            "ResNet-18": "ResNet (1, 1), width 8",
            "WRN-28": "ResNet (1, 1), width 12",
            "WRN-34": "ResNet (1, 1, 1), width 8",
        },
        generated_networks={"PRN-18": "PreActResNet (1, 1), width 8"},
        eps=SMOKE_EPS,
        caveat="Digits, a toy network, 8 epochs and a few images: this shows that everything works, but not "
        "whether the paper's claims hold.",
        seeds=1,
        robust="autoattack",
        robust_images=32,
        watch=Watch(train=200, test=None),
        rounds=5,
        lam=(1.0, 3.5, 6.5),
        fronts={
            "sat": (8, 10),
            "trades": (3.0, 6.0),
            **dict.fromkeys(("uiat", "uiat-oneoff"), (1.0, 3.5, 6.5)),
        },
        beta=(0.0, 1.0, 2.0),
        gamma=(0.5, 0.9, 0.99),
        start=(0.25, 0.5, 0.75),
        one_off=(0.25, 0.5, 0.8),
        halves=tuple(k / 2 for k in range(-2, 5)),
        difference=(0.5, 1.0, 1.5),
    ),
    "cpu": Scale(
        "cpu",
        "cpu: CIFAR-10 at 16×16",
        cpu,
        lambda method: as_single_step(cpu(method, "CIFAR-10", "ResNet-18")),
        _cpu_generated,
        data={"CIFAR-10": "cpu: CIFAR-10 at 16×16", "CIFAR-100": "coarse CIFAR-100"},
        networks={"ResNet-18": "ResNet-8, width 24", "WRN-28": "WRN-10-1", "WRN-34": "WRN-16-1"},
        generated_networks={"PRN-18": "PreActResNet-8", "WRN-28-10": "WRN-10-1"},
        eps=PAPER_EPS,
        caveat="Real images and real methods at a small size: what holds here need not hold at the paper's size, "
        "and vice versa.",
        seeds=3,
        robust="apgd-ce+apgd-t",
        robust_images=1000,
        watch=Watch(train=300, test=1000),
        rounds=15,
        tuned=TUNED,
        weights="last",  # 500 images choose the best epoch too badly: docs/log.md
        lam=(1.75, 3.5, 7.0),
        fronts={
            "sat": (6, 8, 10, 12),
            "trades": (1.0, 3.0, 6.0, 9.0, 12.0),
            **dict.fromkeys(("mart", "hat"), (1.25, 2.5, 5.0, 7.5, 10.0)),
            **dict.fromkeys(("iat", "uiat", "uiat-oneoff"), (0.5, 1.0, 1.75, 3.5, 7.0)),
        },
        beta=(0.0, 1.0),
        gamma=(0.5, 0.9),
        start=(0.25, 0.75),
        one_off=(0.25, 0.8),
        larger_radii=(12,),
        single_step_radii=(8,),
        halves=tuple(k / 2 for k in range(-2, 5)),
        difference=(0.5, 1.0, 1.5, 2.0),
    ),
    "paper": Scale(
        "paper",
        "paper",
        paper,
        lambda method: recipes.get_recipe(f"cifar10-preactresnet18-{method}"),
        _paper_generated,
        data={name: name for name in PAPER_DATA},
        networks={"ResNet-18": "ResNet-18", "WRN-28": "WRN-28-10", "WRN-34": "WRN-34-10"},
        generated_networks={"PRN-18": "PRN-18", "WRN-28-10": "WRN-28-10"},
        eps=PAPER_EPS,
        caveat="The setting of the paper, except for what it leaves open (docs/decisions.md).",
        seeds=1,
        robust="autoattack",
        robust_images=None,
        watch=Watch(train=10_000, test=None),
        rounds=5,
        fronts={
            "sat": (8, 10),
            "trades": (1.0, 3.0, 6.0, 10.0),
            **dict.fromkeys(("uiat", "uiat-oneoff"), (1.0, 2.0, 3.5, 5.0, 6.5)),
        },
    ),
}
