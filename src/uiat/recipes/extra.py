"""Table 4: training with a million generated images (A.2), for GPUs.

The files of Rebuffi et al. (2021), `cifar10_ddpm.npz` and `cifar100_ddpm.npz`, are looked for in the data folder; they
are not downloaded, since no digest of them is known here.
"""

from dataclasses import replace
from typing import Any

from uiat.attacks import PGD
from uiat.config import AnyConfig, Averaging, Config, Schedule, Training, Validation
from uiat.data.config import DataConfig, Generated
from uiat.methods import HAT, TRADES, UIAT, MethodConfig, UIATOneOff
from uiat.models import MODELS
from uiat.targets import Momentum

MODEL_NAMES = ("preactresnet18", "wrn-28-10")
ATTACK = PGD(loss="kl", start="uniform")
METHODS: dict[str, MethodConfig] = {
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
    """Table 4: CIFAR-100 and 1M generated images, 4 to 6, else as CIFAR-10."""
    return _extra(DataConfig(name="cifar100", generated=Generated("cifar100_ddpm.npz", 0.4)), model, method)


def _extra(data: DataConfig, model: str, method: str) -> AnyConfig:
    changes: dict[str, Any] = {"activation": "silu", "normalize": True, "norm_momentum": 0.01}
    if model == "preactresnet18":
        changes["shortcut"] = "raw-3x3"
    network = replace(MODELS[model], **changes)  # type: ignore[type-var]
    training = Training(
        epochs=400,
        batch_size=512,
        schedule=Schedule(lr=0.2),
        decay_norm=False,
        averaging=Averaging(enabled=True, decay=0.995),
    )
    return Config(data, network, METHODS[method], training, Validation())
