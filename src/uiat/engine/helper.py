"""HAT's helper: a naturally trained network, given or trained first."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from uiat.config import AWP, AnyConfig, Averaging
from uiat.distributed import is_main, wait
from uiat.engine.setup import build_model
from uiat.methods import MethodConfig, Natural
from uiat.runs.folder import RunFolder
from uiat.runs.weights import load_weights
from uiat.types import DataSpec


def helper_config(config: AnyConfig, method: MethodConfig, run: RunFolder) -> AnyConfig:
    """Return the run that trains a helper: the same network on the same data, from the same start, naturally."""
    epochs = config.train.epochs if method.helper_epochs is None else method.helper_epochs
    # HAT's practice: a plain network. Its labels are what counts, and it is as good without what makes robustness.
    train = replace(config.train, epochs=epochs, select="natural", averaging=Averaging(), awp=AWP(), fresh_head=False)
    return replace(config, method=Natural(), train=train, init=str(run.initial) if config.init else "")


def get_helper(
    config: AnyConfig,
    run: RunFolder,
    data: DataSpec,
    device: torch.device,
    train: Callable[[AnyConfig, RunFolder], bool],
) -> tuple[bool, nn.Module | None]:
    """Return whether to go on, and the helper if the method asks for one.

    A helper that is not given is a run of its own in the run's folder `helper`, so it is trained once, can be stopped,
    and goes on where it was. The folder may be a link to a finished run that several share.
    """
    method = config.method
    if not method.needs_helper:
        return True, None
    if method.helper:
        return True, given_helper(config, method, data, device)
    own = RunFolder(run.helper)
    if is_main() and not own.config.exists():
        own = RunFolder.create(run.helper, helper_config(config, method, run))
    wait()
    if not own.is_finished and not train(own.read_config(), own):
        return False, None
    return True, _load(config, own.weights(), data, device)


def given_helper(config: AnyConfig, method: MethodConfig, data: DataSpec, device: torch.device) -> nn.Module:
    """Load the helper that `method.helper` names: a run, or a weights file."""
    place = Path(method.helper)
    return _load(config, RunFolder.open(place).find_weights() if place.is_dir() else place, data, device)


def _load(config: AnyConfig, weights: Path, data: DataSpec, device: torch.device) -> nn.Module:
    helper = build_model(config, data, device)
    load_weights(helper, weights)
    return helper.requires_grad_(False)
