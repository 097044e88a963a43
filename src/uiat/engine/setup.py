"""From a configuration to the moving parts of a run."""

from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

from uiat.config import AnyConfig, check_training
from uiat.crafting import crafting
from uiat.data.images import Images
from uiat.data.loader import Loader
from uiat.engine.averaging import Average
from uiat.engine.passes import PassCounter
from uiat.engine.state import State
from uiat.engine.step import make_optimizer
from uiat.errors import UserError
from uiat.models.fast import speed_up, still_same, to_channels_last, trial_batch, verified_fold
from uiat.models.features import features_layer
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
    _find_features(model, data, device)
    if config.train.fast:
        trial = trial_batch(data, device)
        speed_up(to_channels_last(model, trial), trial, compile=config.train.compile)
        if helper is not None:  # it is never trained: one folding is enough
            helper = verified_fold(to_channels_last(helper.eval(), trial), trial) or helper
    method = config.method.build(data, seed=config.seed, helper=helper).to(device)
    plan = config.train
    optimizer = make_optimizer(
        model, plan.momentum, plan.weight_decay, nesterov=plan.nesterov, decay_norm=plan.decay_norm
    )
    average = Average(model, plan.averaging) if plan.averaging.enabled else None
    torch.manual_seed(derive(config.seed, "layers"))  # for layers that draw on their own, such as dropout
    return State(model, method, optimizer, PassCounter(model), average, plan.precision)


def folded_copy_is_valid(state: State, data: DataSpec) -> bool:
    """Whether attacks can go on through the network's copy; no bit of the run is changed by the look."""
    counts = dict(state.passes.counts)
    same = still_same(state.model, trial_batch(data, state.device))
    state.passes.counts.update(counts)
    return same


def _find_features(model: nn.Module, data: DataSpec, device: torch.device) -> None:
    """Look now for the layer of the features: within a step the look would be counted, once more at each resume."""
    with suppress(UserError), crafting(model), torch.no_grad():  # a method that needs no features never hears of it
        features_layer(model, trial_batch(data, device))
