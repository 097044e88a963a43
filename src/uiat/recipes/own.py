"""Recipes for images of one's own: the data is what `--data` names."""

from dataclasses import replace

from uiat.config import AnyConfig, Config, Training, Validation
from uiat.data.config import DataConfig
from uiat.methods import Natural, get
from uiat.models import MODELS


def own(model: str, method: str) -> AnyConfig:
    """Images of one's own (`--data PATH`): ε = 8/255, 30 epochs, batch 64, one cycle to 0.1."""
    part, training = get(method), Training(epochs=30, batch_size=64, log_every=10)
    if isinstance(part, Natural):
        training = replace(training, select="natural")
    return Config(DataConfig(name=""), MODELS[model], part, training, Validation())
