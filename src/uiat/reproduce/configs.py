"""The runs of each scale: a configuration for a method, one of the paper's data sets and one of its networks."""

from dataclasses import replace
from typing import Any

from uiat import methods, recipes
from uiat.config import AnyConfig, Schedule
from uiat.data.config import Generated
from uiat.methods import IAT, UIAT
from uiat.models import MODELS, ModelConfig, PreActResNet, ResNet, WideResNet
from uiat.recipes import small
from uiat.recipes.paper import as_single_step
from uiat.recipes.small import at_radius
from uiat.reproduce.stand_in import stand_in_name


def attack_of(config: AnyConfig) -> Any:
    """Return the attack of a configuration's method."""
    return config.method.attack


def change_method(config: AnyConfig, part: str | None, **changes: Any) -> AnyConfig:
    """Return a configuration with other numbers in its method, or in one part of it."""
    if part is not None:
        changes = {part: replace(getattr(config.method, part), **changes)}
    return replace(config, method=replace(config.method, **changes))  # type: ignore[type-var]


# --- paper: A.2 as it stands, from the recipes ---

DATA = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "SVHN": "svhn"}
_NETWORKS = {"ResNet-18": "resnet18", "WRN-28": "wrn-28-10", "WRN-34": "wrn-34-10"}


def paper(method: str, data: str, network: str) -> AnyConfig:
    """Return the recipe of A.2."""
    return recipes.get(f"{DATA[data]}-{_NETWORKS[network]}-{method}")


def _paper_single_step(method: str) -> AnyConfig:
    return recipes.get(f"cifar10-preactresnet18-{method}")


# --- cpu: 3,000 images of CIFAR-10 at 16×16, mirrored but not cropped, so that a small network fits them under attack
# and overfits as the paper's does (docs/log.md); a run takes minutes ---

_SMALL: dict[str, ModelConfig] = {
    "ResNet-18": ResNet(blocks=(1, 1, 1), width=24),
    "WRN-28": MODELS["wrn-10-1"],
    "WRN-34": WideResNet(depth=16, widen=1),
}
TUNED: dict[str, dict[str, float]] = {}
"""What `tuning` found better than the default: the learning rate (`lr`), or a field of the method."""


def _untuned(method: str, data: str, network: str) -> AnyConfig:
    config = small.cifar10(method)
    return replace(
        config,
        data=replace(config.data, crop=0, subset=3_500, validation=500, test_subset=None),
        model=_SMALL[network],
        train=replace(config.train, epochs=24, batch_size=50, schedule=Schedule(lr=0.1), log_every=0),
        validate=replace(config.validate, steps=10),
    )


def _cpu(method: str, data: str, network: str) -> AnyConfig:
    return tuned(_untuned(method, data, network), TUNED.get(method, {}))


def tuned(config: AnyConfig, values: dict[str, float]) -> AnyConfig:
    """Return a run with another learning rate (`lr`) or other numbers of its method."""
    own = {name: value for name, value in values.items() if name != "lr"}
    schedule = replace(config.train.schedule, lr=values.get("lr", config.train.schedule.lr))
    return change_method(replace(config, train=replace(config.train, schedule=schedule)), None, **own)


def _cpu_single_step(method: str) -> AnyConfig:
    return as_single_step(_untuned(method, "CIFAR-10", "ResNet-18"))


# --- smoke: digits and the smallest network, so that everything takes minutes ---

_TINY: dict[str, ModelConfig] = {
    "ResNet-18": ResNet(blocks=(1, 1), width=8),
    "WRN-28": ResNet(blocks=(1, 1), width=12),
    "WRN-34": ResNet(blocks=(1, 1, 1), width=8),
}
SMOKE_EPOCHS = 8
SMOKE_EPS = 0.1
"""Small enough that twice of it (Table 3's 16/255) can still be learned in so few epochs."""


def smoke(method: str, data: str, network: str) -> AnyConfig:
    """Return a run on digits."""
    config = small.digits(method)
    return replace(
        config,
        model=_TINY[network],
        method=at_radius(methods.get(method), SMOKE_EPS),
        data=replace(config.data, subset=800, validation=80),
        train=replace(config.train, epochs=SMOKE_EPOCHS, log_every=0),
        validate=replace(config.validate, steps=10, eps=SMOKE_EPS if method == "natural" else None),
    )


def _smoke_single_step(method: str) -> AnyConfig:
    return as_single_step(smoke(method, "CIFAR-10", "ResNet-18"))


# --- Table 4: its recipes, and small relatives of them ---

_GENERATED_NETWORKS = {"PRN-18": "preactresnet18", "WRN-28-10": "wrn-28-10"}
_RELATIVES: dict[str, ModelConfig] = {
    "PRN-18": PreActResNet(blocks=(1, 1, 1), width=16, activation="silu", normalize=True),
    "WRN-28-10": WideResNet(depth=10, widen=1, activation="silu", normalize=True),
}


def _paper_generated(method: str, data: str, network: str) -> AnyConfig | None:
    return recipes.get(f"{DATA[data]}-ddpm-{_GENERATED_NETWORKS[network]}-{method}")


def _cpu_generated(method: str, data: str, network: str) -> AnyConfig | None:
    if data != "CIFAR-10":
        return None
    config, size = _paper_generated(method, data, network), _untuned(method, data, "ResNet-18")
    assert config is not None
    images = replace(size.data, generated=config.data.generated)
    own = replace(config, data=images, model=_RELATIVES[network])
    return _fewer_epochs(own, size.train.epochs, batch_size=size.train.batch_size)


def smoke_generated(method: str, data: str, network: str) -> AnyConfig | None:
    """Return a run on digits with stand-ins for generated ones."""
    if (data, network) != ("CIFAR-10", "PRN-18"):
        return None
    config, size = _paper_generated(method, data, network), smoke(method, data, "ResNet-18")
    assert config is not None
    images = replace(size.data, generated=Generated(stand_in_name(size.data), 0.3))
    model = PreActResNet(blocks=(1, 1), width=8, activation="silu", normalize=True)
    own = replace(config, data=images, model=model, method=at_radius(config.method, SMOKE_EPS), validate=size.validate)
    return _fewer_epochs(own, SMOKE_EPOCHS, batch_size=size.train.batch_size)


def _fewer_epochs(config: AnyConfig, epochs: int, *, batch_size: int) -> AnyConfig:
    """Return a run of so many epochs, with everything that counts epochs in proportion."""
    before, own = config.train.epochs, config.method
    train = replace(config.train, epochs=epochs, batch_size=batch_size, log_every=0)
    if isinstance(own, IAT | UIAT):
        config = change_method(config, "momentum", start=own.momentum.start / before)
    if own.helper_epochs:
        config = change_method(config, None, helper_epochs=max(1, own.helper_epochs * epochs // before))
    return replace(config, train=train)


GENERATED = {"smoke": smoke_generated, "cpu": _cpu_generated, "paper": _paper_generated}
CONFIGS = {"smoke": smoke, "cpu": _cpu, "paper": paper}
UNTUNED = {"smoke": smoke, "cpu": _untuned, "paper": paper}
SINGLE_STEP = {"smoke": _smoke_single_step, "cpu": _cpu_single_step, "paper": _paper_single_step}
