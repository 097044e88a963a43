"""The paper's own settings, for GPUs: A.2, and Table 4 with a million generated images.

The files of Rebuffi et al. (2021), `cifar10_ddpm.npz` and `cifar100_ddpm.npz`, have to be in the data folder;
they are not downloaded, since no digest of them is known.
"""

from dataclasses import replace
from typing import Any

from uiat.attacks import PGD
from uiat.config import AnyConfig, Averaging, Config, Schedule, Training, Validation
from uiat.data.data_config import DataConfig, Generated
from uiat.methods import HAT, IAT, MART, TRADES, UIAT, GradAlign, MethodConfig, Natural, UIATOneOff, get_method
from uiat.models import MODELS
from uiat.targets import Momentum

CIFAR100_ROTATION = 15.0
"""Degrees of the random rotation in HAT's code for CIFAR-100; A.2 states no augmentation (docs/decisions.md, 29)."""


def cifar10(model: str, method: str) -> AnyConfig:
    """CIFAR-10: 100 epochs, batch 128, one cycle to 0.1, weight decay 5e-4."""
    config = _multi_step("cifar10", model, method, epochs=100)
    if isinstance(config.method, MART) and model.startswith("wrn"):  # as its authors do
        config = replace(config, method=replace(config.method, beta=6.0))
    return _with_short_helper(config)


def cifar100(model: str, method: str) -> AnyConfig:
    """CIFAR-100: as CIFAR-10, and rotations of up to 15 degrees."""
    config = _with_short_helper(_multi_step("cifar100", model, method, epochs=100))
    network = replace(config.model, statistics="cifar100")  # type: ignore[type-var]  # for --model.normalize
    return replace(config, model=network, data=replace(config.data, rotation=CIFAR100_ROTATION))


def _with_short_helper(config: AnyConfig) -> AnyConfig:
    """Return the run; HAT's helper is trained for 50 epochs, as its authors do."""
    if not isinstance(config.method, HAT):
        return config
    return replace(config, method=replace(config.method, helper_epochs=50))


def svhn(model: str, method: str) -> AnyConfig:
    """SVHN: 30 epochs, PGD step 1/255, λ 3.0, no augmentation."""
    config = _multi_step("svhn", model, method, epochs=30)
    changes: dict[str, Any] = {}
    if isinstance(config.method.attack, PGD):
        changes["attack"] = replace(config.method.attack, step=1 / 255)
    if isinstance(config.method, IAT | UIAT | UIATOneOff):
        changes["lam"] = 3.0
    changed = replace(config.method, **changes)  # type: ignore[type-var]
    return replace(config, method=changed, data=replace(config.data, crop=0, flip=False))


def single_step(model: str, method: str) -> AnyConfig:
    """Table 5: CIFAR-10, 30 epochs, a triangular schedule, as in the code of N-FGSM and GradAlign."""
    config = as_single_step(_multi_step("cifar10", model, method, epochs=30))
    network = replace(MODELS[model], shortcut="raw", normalize=True)  # type: ignore[type-var]
    return replace(config, model=network)


def as_single_step(config: AnyConfig) -> AnyConfig:
    """Return a run with the optimiser of Table 5: RS-FGSM and N-FGSM cycle the momentum, GradAlign peaks earlier."""
    if isinstance(config.method, GradAlign):
        schedule = Schedule(name="triangular", lr=0.3, warmup=0.4)
    else:
        schedule = Schedule(name="triangular", lr=0.2, warmup=0.5, low_momentum=0.8)
    return replace(config, train=replace(config.train, schedule=schedule, nesterov=False))


def _multi_step(data: str, model: str, method: str, *, epochs: int) -> AnyConfig:
    part = get_method(method)
    select = "natural" if isinstance(part, Natural) else "robust"
    training = Training(epochs=epochs, select=select)  # type: ignore[arg-type]
    return Config(DataConfig(name=data), MODELS[model], part, training, Validation())


GENERATED_MODELS = ("preactresnet18", "wrn-28-10")
ATTACK = PGD(loss="kl", start="uniform")
GENERATED_METHODS: dict[str, MethodConfig] = {
    "uiat": UIAT(momentum=Momentum(start=350)),
    "uiat-oneoff": UIATOneOff(),
    "trades": TRADES(attack=ATTACK, label_smoothing=0.1, crafting="batch"),  # the table's "Rebuffi et al."
    "hat": HAT(beta=3.5, attack=ATTACK, label_smoothing=0.1, crafting="batch", helper_epochs=50),
}
"""The rows of the table; the baselines as in HAT's code for generated images. T' of one-off UIAT is epoch 320 by its
fraction."""


def cifar10_ddpm(model: str, method: str) -> AnyConfig:
    """Table 4: CIFAR-10 and 1M generated images, 3 to 7, SiLU, averaged weights, 400 epochs, batch 512."""
    return _extra(DataConfig(name="cifar10", generated=Generated("cifar10_ddpm.npz", 0.3)), model, method)


def cifar100_ddpm(model: str, method: str) -> AnyConfig:
    """Table 4: CIFAR-100 and 1M generated images, 4 to 6, rotations of up to 15 degrees, else as CIFAR-10."""
    generated = Generated("cifar100_ddpm.npz", 0.4)
    data = DataConfig(name="cifar100", generated=generated, rotation=CIFAR100_ROTATION)
    return _extra(data, model, method)


def _extra(data: DataConfig, model: str, method: str) -> AnyConfig:
    changes: dict[str, Any] = {"activation": "silu", "normalize": True, "norm_momentum": 0.01, "statistics": data.name}
    if model == "preactresnet18":
        changes["shortcut"] = "raw-3x3"
    network = replace(MODELS[model], **changes)  # type: ignore[type-var]
    training = Training(
        epochs=400,
        batch_size=512,
        schedule=Schedule(lr=0.2, low_momentum=0.85),  # with the momentum below, OneCycleLR's defaults: HAT's code
        momentum=0.95,
        decay_norm=False,
        averaging=Averaging(enabled=True, decay=0.995),
    )
    return Config(data, network, GENERATED_METHODS[method], training, Validation())
