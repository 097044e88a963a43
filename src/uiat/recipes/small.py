"""Recipes for a CPU (real data, a small network, minutes) and for custom images."""

from dataclasses import replace

from uiat.config import AnyConfig, Config, Schedule, Training, Validation
from uiat.data.data_config import DataConfig
from uiat.methods import MethodConfig, Natural, get_method
from uiat.models import MODELS, ModelConfig
from uiat.recipes.variants import at_radius, tuned

DIGITS_EPS = 0.2
RS_FGSM_EPS = 0.1
"""RS-FGSM overfits catastrophically at larger radii on digits: its recipes train at half of it."""


DIGITS_TUNED: dict[str, dict[str, float]] = {
    "sat": {"lr": 0.4, "weight_decay": 5e-4},
    "trades": {"lr": 0.4, "omega": 3.0},
    "mart": {"lr": 0.4, "beta": 2.5},
    "hat": {"lr": 0.4, "beta": 2.5},
    "iat": {"lr": 0.2, "lam": 2.0},
    "uiat": {"lr": 0.4, "lam": 1.0},
    "uiat-oneoff": {"lr": 0.2, "lam": 2.0},
}
"""Learning rate and weight of each method, selected on validation images over three seeds (docs/log.md)."""


def digits(method: str) -> AnyConfig:
    """8×8 digits, ε = 0.2 on [0, 1] pixels (RS-FGSM: 0.1), 20 epochs: about a minute on two cores."""
    config = _small(
        DataConfig(name="digits", crop=0, flip=False),
        method,
        eps=RS_FGSM_EPS if method.startswith("rs-fgsm") else DIGITS_EPS,
        training=Training(epochs=20, batch_size=64, schedule=Schedule(lr=0.2), log_every=10),
    )
    return tuned(config, DIGITS_TUNED.get(method, {}))


def fashion_mnist(method: str) -> AnyConfig:
    """Fashion-MNIST at 14×14, ε = 0.1, 10,000 images, 15 epochs."""
    return _small(
        DataConfig(name="fashion-mnist", size=14, crop=1, flip=True, subset=10_000, test_subset=2_000),
        method,
        eps=0.1,
        training=Training(epochs=15, batch_size=128, schedule=Schedule(lr=0.2)),
    )


def cifar10_small(method: str) -> AnyConfig:
    """CIFAR-10 at 16×16, ε = 8/255, 20,000 images, 20 epochs."""
    return _small(
        DataConfig(name="cifar10", size=16, crop=2, flip=True, subset=20_000, test_subset=2_000),
        method,
        eps=8 / 255,
        training=Training(epochs=20, batch_size=128, schedule=Schedule(lr=0.2)),
    )


def _small(data: DataConfig, method: str, *, eps: float, training: Training) -> AnyConfig:
    config, validation = at_radius(get_method(method), eps), Validation()
    if isinstance(config, Natural):
        training, validation = replace(training, select="natural"), Validation(eps=eps)
    return Config(data, MODELS["resnet8"], config, training, validation)


def custom(model: str, method: str) -> AnyConfig:
    """Custom images (`--data PATH`): ε = 8/255, 30 epochs, batch 64, one cycle to 0.1."""
    return custom_run(MODELS[model], get_method(method))


def custom_run(model: ModelConfig, method: MethodConfig) -> AnyConfig:
    """Return the configuration for custom images."""
    training = Training(epochs=30, batch_size=64, log_every=10)
    if isinstance(method, Natural):
        training = replace(training, select="natural")
    return Config(DataConfig(name=""), model, method, training, Validation())
