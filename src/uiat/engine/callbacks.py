"""Training callbacks: functions called with every line of metrics.jsonl.

`uiat train --log tensorboard` is one; `uiat train --log my_log:make` is a custom one.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uiat.config import AnyConfig
from uiat.crafting import crafting
from uiat.data import Splits
from uiat.data.images import to_unit
from uiat.engine.state import State
from uiat.errors import UserError
from uiat.plugins import import_callable
from uiat.rng import SampleDraws
from uiat.runs.run_folder import RunFolder
from uiat.targets import InstanceInverse

PICTURES = 8
"""Number of validation images in the pictures of an epoch."""


@dataclass(frozen=True)
class LogEvent:
    """Event after some steps, or at the end of an epoch."""

    record: dict[str, Any]
    """The line of metrics.jsonl: `kind` is "step" or "epoch"; losses, accuracies, learning rate."""
    at: int
    """Number of steps since the beginning of the run."""
    state: State
    """The state of the run; read-only."""
    pictures: Callable[[], Tensor]
    """Returns (3, images, C, H, W) in [0, 1]: inverse adversarial, natural and adversarial validation images."""


Callback = Callable[[LogEvent], None]


def make_pictures(config: AnyConfig, splits: Splits, state: State) -> Tensor:
    """Craft inverse adversarial (without the feature term) and adversarial examples of a few validation images.

    The run is not affected: draws are keyed, statistics are not updated, and passes are not counted.
    """
    attack = replace(config.validate.attack(config.method), steps=10)
    inverse = InstanceInverse(attack.eps, attack.eps / 4, 10, beta=0.0, start="none", norm=attack.norm)
    images = splits.validation.part(0, min(PICTURES, len(splits.validation)))
    x, y = to_unit(images.x.to(state.device)), images.y.to(state.device)
    with state.passes.paused(), crafting(state.model, "eval") as network, torch.no_grad():
        x_adv = attack(network, x, y, SampleDraws(config.seed, index=tuple(range(len(y)))))
        return torch.stack([inverse(network, x, y, x), x, x_adv]).cpu()


class TensorBoard:
    """Writes scalars, and the pictures of each epoch, to the folder `tensorboard` of the run."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("--log tensorboard needs the package tensorboard: pip install tensorboard.") from None
        self.folder, self.make = folder / "tensorboard", SummaryWriter
        self.writer: SummaryWriter | None = None

    def __call__(self, event: LogEvent) -> None:
        """Write a line, and the pictures at the end of an epoch."""
        if self.writer is None:  # at the first line: a resumed run overwrites what it repeats
            self.writer = self.make(str(self.folder), purge_step=event.at)
        kind, writer = event.record["kind"], self.writer
        for name, value in event.record.items():
            if isinstance(value, int | float) and isfinite(value):
                writer.add_scalar(f"{kind}/{name}", value, event.at)
        if kind == "epoch":
            rows = torch.cat([torch.cat(list(row), dim=2) for row in event.pictures()], dim=1)
            writer.add_image("inverse, natural, adversarial", rows, event.at)
        writer.flush()


def open_callback(log: str, run: RunFolder, config: AnyConfig) -> Callback | None:
    """Return the callback that `--log` names: `tensorboard`, or the result of `module:function(folder, config)`."""
    if not log:
        return None
    if log == "tensorboard":
        return TensorBoard(run.path)
    if ":" not in log:
        raise UserError(f"--log {log!r} is not known: give tensorboard or MODULE:FUNCTION.")
    make = import_callable(log, "--log")
    callback = make(run.path, config) if _takes(make, run.path, config) else None
    if not callable(callback) or not _takes(callback, None):
        raise UserError(
            f"--log {log}: it must take a run's folder and its configuration, and return a function that "
            "takes a LogEvent."
        )
    return callback  # type: ignore[no-any-return]


def _takes(function: Callable[..., object], *arguments: object) -> bool:
    """Whether a function can be called with these arguments; true for built-in ones without a signature."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
