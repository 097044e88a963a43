"""From a configuration to the moving parts of a run."""

from pathlib import Path

import torch
from torch import nn

from uiat.config import AnyConfig, check_training
from uiat.data.images import Images
from uiat.data.loader import Loader
from uiat.engine.averaging import Average
from uiat.engine.passes import PassCounter
from uiat.engine.state import State
from uiat.engine.step import make_optimizer
from uiat.models.fast import speed_up, to_channels_last
from uiat.models.trial import trial_batch
from uiat.rng import derive
from uiat.runs.weights import load_weights
from uiat.types import DataSpec


def build_model(config: AnyConfig, data: DataSpec, device: torch.device) -> nn.Module:
    """Return the network with the weights that the seed gives it."""
    torch.manual_seed(derive(config.seed, "weights"))
    return config.model.build(data).to(device)


def build_loader(config: AnyConfig, images: Images, device: torch.device, generated: Images | None = None) -> Loader:
    """Return the training batches, in the order and with the augmentation that the configuration gives them."""
    choice = config.data
    return Loader(
        images,
        config.train.batch_size,
        config.seed,
        crop=choice.crop,
        flip=choice.flip,
        device=device,
        generated=generated,
        original=choice.generated.original,
        cutout=choice.cutout,
        cutmix=choice.cutmix,
    )


def build_state(
    config: AnyConfig, data: DataSpec, device: torch.device, helper: nn.Module | None, initial: Path | None = None
) -> State:
    """Return the run's state before its first step; `initial` are weights to begin with."""
    check_training(config.train)
    model = build_model(config, data, device)
    if initial is not None:
        load_weights(model, initial)
    plan, trial = config.train, trial_batch(data, device)
    if plan.fast:
        to_channels_last(model, trial)
        if helper is not None:  # it is never trained: its copy is made once
            helper = speed_up(to_channels_last(helper.eval(), trial), trial).crafting_network()
    fast = speed_up(model, trial, fold=plan.fast, compile=plan.compile)
    method = config.method.build(data, seed=config.seed, helper=helper).to(device)
    optimizer = make_optimizer(
        model, plan.momentum, plan.weight_decay, nesterov=plan.nesterov, decay_norm=plan.decay_norm
    )
    average = Average(model, plan.averaging) if plan.averaging.enabled else None
    torch.manual_seed(derive(config.seed, "layers"))  # for layers that draw on their own, such as dropout
    return State(model, method, optimizer, PassCounter(fast), average, plan.precision, fast)


def folded_copy_is_valid(state: State, data: DataSpec) -> bool:
    """Return whether attacks can go on through the network's folded copy; no bit of the run is changed by the check."""
    if state.fast is None:
        return True
    counts = dict(state.passes.counts)
    same = state.fast.folded_copy_is_valid(trial_batch(data, state.device))
    state.passes.counts.update(counts)
    return same
