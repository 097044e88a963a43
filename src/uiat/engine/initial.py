"""Weights to begin a run with: anyone's file, a run, or an export."""

from pathlib import Path

import torch
from torch import nn

from uiat.config import AnyConfig
from uiat.data.files import user_path
from uiat.distributed import is_main, wait
from uiat.engine.setup import build_model
from uiat.errors import UserError
from uiat.io import write_tensors
from uiat.runs.folder import RunFolder
from uiat.runs.weights import EXPORTED, load_weights
from uiat.types import DataSpec


def initial_model(config: AnyConfig, data: DataSpec) -> nn.Module:
    """Return the network, on the CPU, with the weights that `--init` names; a fresh head has those of the seed."""
    model = build_model(config, data, torch.device("cpu"))
    if config.train.fresh_head and not config.init:
        raise UserError("--train.fresh-head is given without --init: all layers start anew then, leave it out.")
    if config.init:
        head = head_of(model, data.num_classes)
        if config.train.fresh_head and not head:
            raise UserError(
                f"no layer with {data.num_classes} outputs was found to start anew: leave --train.fresh-head out."
            )
        load_weights(model, weights_at(config.init), head=head, fresh_head=config.train.fresh_head)
    return model


def keep_initial(config: AnyConfig, run: RunFolder, data: DataSpec) -> Path | None:
    """Copy the weights that `--init` names into the run, which never asks for them again; return the copy.

    `None` without such weights, and where a checkpoint says more.
    """
    if not config.init or run.has_checkpoint():
        return None
    if is_main() and not run.initial.exists():
        write_tensors(run.initial, initial_model(config, data).state_dict())
    wait()
    return run.initial


def weights_at(given: str) -> Path:
    """Return the file of the weights: the one given, or the one in the folder of a run or an export."""
    place = user_path(given)
    if not place.is_dir():
        return place
    if not RunFolder(place).config.is_file() and (place / EXPORTED).is_file():
        return place / EXPORTED
    if not RunFolder(place).config.is_file():
        raise UserError(f"the folder {place} is neither a run nor an export: give one of these, or a weights file.")
    return RunFolder(place).find_weights()


def head_of(model: nn.Module, classes: int) -> tuple[str, ...]:
    """Name the parameters of the last layer with an output for each class; nothing where there is none."""
    found: tuple[str, ...] = ()
    for prefix, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if any(parameter.ndim > 1 and len(parameter) == classes for parameter in own.values()):
            found = tuple(f"{prefix}.{name}".lstrip(".") for name in own)
    return found
