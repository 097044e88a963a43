"""The paper's own settings (A.2), for a GPU."""

from dataclasses import replace
from typing import Any

from uiat.attacks import PGD
from uiat.config import AnyConfig, Config, Schedule, Training, Validation
from uiat.data.config import DataConfig
from uiat.methods import IAT, MART, UIAT, GradAlign, Natural, UIATOneOff, get
from uiat.models import MODELS


def cifar10(model: str, method: str) -> AnyConfig:
    """CIFAR-10: 100 epochs, batch 128, one cycle to 0.1, weight decay 5e-4."""
    config = _multi_step("cifar10", model, method, epochs=100)
    if isinstance(config.method, MART) and model.startswith("wrn"):  # as its authors do
        config = replace(config, method=replace(config.method, beta=6.0))
    return config


def cifar100(model: str, method: str) -> AnyConfig:
    """CIFAR-100: as CIFAR-10."""
    return _multi_step("cifar100", model, method, epochs=100)


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
    part = get(method)
    select = "natural" if isinstance(part, Natural) else "robust"
    training = Training(epochs=epochs, select=select)  # type: ignore[arg-type]
    return Config(DataConfig(name=data), MODELS[model], part, training, Validation())
