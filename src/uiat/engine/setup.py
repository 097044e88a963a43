"""Setup of a run from its configuration: network, loader, initial weights, HAT's helper, state."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from uiat.averaging import AveragedWeights
from uiat.config import AWP, AnyConfig, Averaging
from uiat.data.images import Images
from uiat.data.loader import Loader
from uiat.distributed import is_main, wait, world
from uiat.engine.pass_counter import PassCounter
from uiat.engine.state import State
from uiat.engine.step import make_optimizer
from uiat.errors import UserError
from uiat.io import write_tensors
from uiat.methods import MethodConfig, Natural
from uiat.models.fast import speed_up, to_channels_last
from uiat.models.probe import trial_batch
from uiat.rng import derive
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import locate, read_export
from uiat.runs.weights import EXPORTED, load_weights
from uiat.types import DataSpec

ADAMW_RATE = 0.02
"""Learning rates from which AdamW gets a note: those of SGD, the default."""
FEW_ROWS = 16
"""With a smaller share of a batch per process, BatchNorm's statistics are noisy."""


@contextmanager
def cudnn_benchmark(device: torch.device) -> Iterator[None]:
    """Enable cuDNN's benchmark mode on GPUs, unless deterministic algorithms were requested."""
    cudnn = torch.backends.cudnn
    before, fixed = cudnn.benchmark, cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    cudnn.benchmark = before or (device.type == "cuda" and not fixed)
    try:
        yield
    finally:
        cudnn.benchmark = before


def build_model(config: AnyConfig, data: DataSpec, device: torch.device) -> nn.Module:
    """Return the network with the initial weights of the seed."""
    torch.manual_seed(derive(config.seed, "weights"))
    return config.model.build(data).to(device)


def small_share(model: nn.Module, batch_size: int) -> int | None:
    """Return the rows of a batch per process if they are too few for BatchNorm's statistics; else `None`."""
    share = batch_size // world()
    normalised = any(isinstance(m, _BatchNorm) and not isinstance(m, nn.SyncBatchNorm) for m in model.modules())
    return share if world() > 1 and share < FEW_ROWS and normalised else None


def build_loader(config: AnyConfig, images: Images, device: torch.device, generated: Images | None = None) -> Loader:
    """Return the loader of training batches, with the order and augmentation of the configuration."""
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
        rotation=choice.rotation,
    )


def build_state(
    config: AnyConfig, data: DataSpec, device: torch.device, helper: nn.Module | None, initial: Path | None = None
) -> State:
    """Return the run's state before its first step; `initial` is a file of initial weights."""
    model = build_model(config, data, device)
    if initial is not None:
        load_weights(model, initial)
    plan, trial = config.train, trial_batch(data, device)
    if plan.in_channels_last:
        for network in (model,) if helper is None else (model, helper.eval()):
            to_channels_last(network, trial)
    if plan.fast and helper is not None:  # it is not trained: its copy is made once
        helper = speed_up(helper.eval(), trial, channels_last=plan.in_channels_last).crafting_network()
    fast = speed_up(model, trial, fold=plan.fast, compile=plan.compile, channels_last=plan.in_channels_last)
    method = config.method.build(data, seed=config.seed, helper=helper).to(device)
    optimizer = make_optimizer(
        model,
        plan.momentum,
        plan.weight_decay,
        nesterov=plan.nesterov,
        decay_norm=plan.decay_norm,
        name=plan.optimizer,
    )
    average = AveragedWeights(model, plan.averaging.decay) if plan.averaging.enabled else None
    torch.manual_seed(derive(config.seed, "layers"))  # for layers that draw on their own, such as dropout
    return State(model, method, optimizer, PassCounter(fast), average, plan.precision, fast)


def folded_copy_is_valid(state: State, data: DataSpec) -> bool:
    """Return whether the network's folded copy can still be used; the check does not affect the run."""
    if state.fast is None:
        return True
    with state.passes.paused():
        return state.fast.folded_copy_is_valid(trial_batch(data, state.device))


def initial_model(config: AnyConfig, data: DataSpec) -> nn.Module:
    """Return the network, on the CPU, with the weights of `--init`; a fresh head is initialised from the seed."""
    model = build_model(config, data, torch.device("cpu"))
    if config.train.fresh_head and not config.init:
        raise UserError("--train.fresh-head is given without --init: all layers are new then, omit it.")
    if config.init:
        head = head_of(model, data.num_classes)
        if config.train.fresh_head and not head:
            raise UserError(
                f"--train.fresh-head needs a last layer with {data.num_classes} outputs, one for each class, and the "
                "network has none: build it for this number of classes (a callable may take num_classes)."
            )
        load_weights(model, weights_at(config.init), head=head, fresh_head=config.train.fresh_head)
    return model


def large_rate(config: AnyConfig) -> str:
    """Return a note on a learning rate that suits SGD but not AdamW; else ""."""
    lr = config.train.schedule.lr
    if config.train.optimizer != "adamw" or lr < ADAMW_RATE:
        return ""
    return f"train.schedule.lr = {lr:g} is large for AdamW; give a smaller one, such as 1e-3"


def keep_initial(config: AnyConfig, run: RunFolder, data: DataSpec) -> Path | None:
    """Copy the weights of `--init` into the run, which does not need the original again; return the copy.

    Return `None` without such weights, or if there is a checkpoint.
    """
    if not config.init or run.has_checkpoint():
        return None
    if is_main() and not run.initial.exists():
        write_tensors(run.initial, initial_model(config, data).state_dict())
    wait()
    return run.initial


def weights_at(given: str) -> Path:
    """Return the weights file that is given directly, or by a run or an export in a folder or on the Hub."""
    place = locate(given)
    if not place.is_dir():
        return place
    if (export := read_export(place)) is not None:
        return export.weights_file()
    if (run := RunFolder(place)).config.is_file():
        return run.find_weights()
    if (place / EXPORTED).is_file():
        return place / EXPORTED
    raise UserError(f"the folder {place} is neither a run nor an export: give one of these, or a weights file.")


def head_of(model: nn.Module, classes: int) -> tuple[str, ...]:
    """Return the parameter names of the last layer with an output for each class; empty if there is none."""
    head: tuple[str, ...] = ()
    for prefix, module in model.named_modules():
        parameters = dict(module.named_parameters(recurse=False))
        if any(parameter.ndim > 1 and len(parameter) == classes for parameter in parameters.values()):
            head = tuple(f"{prefix}.{name}".lstrip(".") for name in parameters)
    return head


def helper_config(config: AnyConfig, method: MethodConfig, run: RunFolder) -> AnyConfig:
    """Return the configuration of the helper's run: the same network, data and initial weights, trained naturally."""
    epochs = config.train.epochs if method.helper_epochs is None else method.helper_epochs
    # As in HAT's code, the helper is trained without averaging and AWP: only its labels are used.
    train = replace(config.train, epochs=epochs, select="natural", averaging=Averaging(), awp=AWP(), fresh_head=False)
    return replace(config, method=Natural(), train=train, init=str(run.initial) if config.init else "")


def get_helper(
    config: AnyConfig,
    run: RunFolder,
    data: DataSpec,
    device: torch.device,
    train: Callable[[AnyConfig, RunFolder], bool],
) -> tuple[bool, nn.Module | None]:
    """Return whether to continue, and the helper if the method needs one.

    A helper that is not given is trained in a run in the folder `helper` of this run, so that it is trained once and
    can be stopped and resumed. The folder may be a link to a finished run that several runs share.
    """
    method = config.method
    if not method.needs_helper:
        return True, None
    if method.helper:
        return True, given_helper(config, method, data, device)
    helper_run = RunFolder(run.helper)
    if run.helper.is_symlink() and not helper_run.is_finished:
        raise UserError(f"{run.helper} is a link to a run that is not finished: finish that one first.")
    if is_main() and not helper_run.config.exists():
        helper_run = RunFolder.create(run.helper, helper_config(config, method, run))
    wait()
    if not helper_run.is_finished:
        saved = helper_run.read_config()
        if saved.model != config.model:  # it may name code that only the folder names
            raise UserError(f"{helper_run.config} has another network than {run.config}: move {run.helper} away.")
        if not train(replace(saved, model=config.model), helper_run):  # equal, and it may hold a network in memory
            return False, None
    return True, _load(config, helper_run.weights(), data, device)


def given_helper(config: AnyConfig, method: MethodConfig, data: DataSpec, device: torch.device) -> nn.Module:
    """Load the helper that `method.helper` names: a run, or a weights file."""
    place = Path(method.helper)
    return _load(config, RunFolder.open(place).find_weights() if place.is_dir() else place, data, device)


def _load(config: AnyConfig, weights: Path, data: DataSpec, device: torch.device) -> nn.Module:
    helper = build_model(config, data, device)
    load_weights(helper, weights)
    return helper.requires_grad_(False)
