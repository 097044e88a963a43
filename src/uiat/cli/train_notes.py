"""Notes about likely mistakes in the settings of a new run."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from uiat import data
from uiat.attacks import norm_of
from uiat.balls import Norm
from uiat.config import AnyConfig
from uiat.engine.setup import build_loader
from uiat.fields import show_number
from uiat.methods import MethodConfig
from uiat.models import Imported
from uiat.models.libraries import input_format
from uiat.recipes.variants import SCALED_FIELDS

FEW_STEPS = 30
"""Runs with fewer steps get a note: the initial BatchNorm statistics would still weigh 5 % (0.9 to the 28th)."""


def note_large_steps(method: MethodConfig, args: list[str]) -> str:
    """Return a note on step sizes and radii larger than ε without their own flag among the arguments, or ""."""
    if method.attack is None:
        return ""
    eps, norm = method.attack.eps, norm_of(method.attack)
    given = {word.partition("=")[0].removeprefix("--") for word in args}
    larger = [
        f"{name} = {show_number(value)}"
        for name, value in _radii(method, "method.", norm)
        if value > eps > 0 and name not in given
    ]
    shown = show_number(eps)
    advice = f"`--eps {shown}` scales all radii and step sizes along"
    return f"{', '.join(larger)}: larger than ε = {shown}; {advice}" if larger else ""


def _radii(part: Any, path: str, norm: Norm) -> Iterator[tuple[str, float]]:
    """Yield the radii and step sizes in this norm of a configuration and its parts, except parts that are disabled."""
    values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
    if not values.get("enabled", True):
        return
    for name, value in values.items():
        if is_dataclass(value):
            yield from _radii(value, f"{path}{name}.", norm)
        elif name in SCALED_FIELDS and isinstance(value, float) and values.get("norm", norm) == norm:
            yield f"{path}{name}", value


def note_resized(config: AnyConfig) -> str:
    """Return a note if the images have the size for which a library configures the network; else ""."""
    target = config.model.target if isinstance(config.model, Imported) else ""
    size = input_format(target).size
    if size is None or size != config.data.size:
        return ""
    shown = "×".join(map(str, size))
    return f"images are resized to {shown}, for which {target} is configured; --data.size changes this"


def note_few_steps(config: AnyConfig, splits: data.Splits) -> str:
    """Return a note if a run has too few steps to learn anything, as on a few images in large batches."""
    epochs = config.train.epochs
    steps = build_loader(config, splits.train, torch.device("cpu"), splits.generated).steps_per_epoch
    if epochs * steps >= FEW_STEPS:
        return ""
    return (
        f"{epochs * steps} steps in total ({steps} per epoch) are few to learn from: give smaller batches "
        f"(--train.batch-size) or more epochs (--train.epochs {-(-FEW_STEPS // steps)})"
    )
