"""`uiat.fit`: a training with the engine of `uiat train`, for a network and images in memory."""

from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from uiat.config import AnyConfig, OptimizerName, check
from uiat.data import Splits
from uiat.data.images import SPLIT_SEED, default_validation, hold_out
from uiat.data.in_memory import IN_MEMORY, gather_images
from uiat.distributed import launched, pick_device
from uiat.engine.loop import dry_build
from uiat.engine.loop import train as train_run
from uiat.engine.setup import large_rate
from uiat.engine.signals import StopSignal
from uiat.errors import UserError, unknown
from uiat.evaluation.evaluator import count_classes
from uiat.fields import number_argument
from uiat.io import write_tensors
from uiat.methods import MethodConfig, get_method
from uiat.models import InMemory
from uiat.progress import print_message
from uiat.recipes.small import custom_run
from uiat.recipes.variants import with_radius
from uiat.runs.identity import check_classes, keep_identity
from uiat.runs.provenance import config_differences, extended
from uiat.runs.run_folder import RunFolder
from uiat.runs.weights import file_digest, load_weights, weights_digest
from uiat.typed import check_fields

AUGMENTATIONS = ("data.crop", "data.flip", "data.cutout", "data.cutmix", "data.rotation")
"""The options of data that apply to images in memory."""


@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of `uiat.fit`."""

    model: nn.Module
    """The trained network, the object that was given: in eval mode, with the weights of the best epoch."""
    history: list[dict[str, float]]
    """The record of each epoch, as in metrics.jsonl: mean losses, `train_accuracy` (on x̂), `val_natural`,
    `val_robust`, `seconds`."""
    best: dict[str, float]
    """The best epoch on the validation images: `epoch`, `val_natural`, `val_robust`."""
    folder: Path | None
    """The run folder; `None` if nothing was kept."""


def fit(
    model: nn.Module,
    train: Any,
    validation: Any = None,
    method: str | MethodConfig = "uiat",
    *,
    epochs: int = 30,
    batch_size: int = 64,
    lr: float = 0.1,
    optimizer: OptimizerName = "sgd",
    eps: float | None = None,
    crop: int = 4,
    flip: bool = True,
    averaging: bool = False,
    awp: bool = False,
    seed: int = 0,
    device: str | torch.device = "auto",
    out: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> FitResult:
    """Train a network adversarially, in place, as `uiat train` does: same loop, random draws, speed and checkpoints.

    >>> import torch, uiat
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> x, y = torch.rand(80, 1, 8, 8), torch.arange(80) % 10
    >>> result = uiat.fit(model, (x, y), method=uiat.UIAT(lam=1.0), epochs=2, eps=0.1, out="runs/mine")
    epoch 1/2 ...
    epoch 2/2 ...
    >>> len(result.history), 0 <= result.best["val_robust"] <= 1
    (2, True)

    With `out`, the training is a run folder: interrupted and called again with the same arguments, it resumes from its
    last checkpoint, with the same result; a finished run is only read. HAT's helper is trained first, in the folder.

    Args:
        model: returns logits for images in [0, 1]; normalisation belongs inside it. Training starts from its weights
            and leaves those of the best epoch in it. Parameters without `requires_grad` are unchanged.
        train: a map-style data set of (image, label) or of dicts, or a pair (x, y): images (N, C, H, W), bytes or
            floats in [0, 1], and integer labels. All images are held in memory, in 8 bits. The data must not augment.
        validation: the same; `None` holds out a tenth of the training images, at most 1,024.
        method: a name as in `uiat list methods`, or a configuration such as `uiat.TRADES(omega=3.0)`.
        epochs: passes over the training images.
        batch_size: samples in an optimiser step.
        lr: the maximum of the learning rate; the schedule is one cycle.
        optimizer: "sgd" or "adamw", for which `lr` has to be smaller.
        eps: ε; all radii and step sizes of the method are scaled along. `None`: those of the method.
        crop: zero padding of the random crop of training images, in pixels; 0 switches it off.
        flip: flip each training image horizontally with probability 0.5.
        averaging: average the weights; the average is then selected and returned.
        awp: adversarial weight perturbation.
        seed: of all random draws, except the network's initial weights.
        device: as in `uiat train`; the network is moved to it.
        out: the run folder; `None`: a temporary one, which is removed.
        options: further fields of the configuration (docs/configuration.md), by dotted name:
            `{"train.weight_decay": 1e-4, "train.schedule.name": "piecewise", "data.cutout": 8}`.
    """
    if launched() > 1:
        raise UserError("uiat.fit trains on one process: use `uiat train` with torchrun or --processes.")
    place = pick_device(str(device))
    for name in options or {}:
        if name.partition(".")[0] in ("data", "model", "init") and name not in AUGMENTATIONS:
            raise UserError(f"the option {name!r} has no effect in uiat.fit, which gets the network and the images.")
    splits = _splits(model, train, validation)
    template = deepcopy(model)
    config = custom_run(InMemory.of(template), get_method(method) if isinstance(method, str) else method)
    config = config if eps is None else with_radius(config, number_argument("eps", eps), "eps")
    config = override(
        config,
        {
            "data.name": IN_MEMORY,
            "data.crop": crop,
            "data.flip": flip,
            "train.epochs": epochs,
            "train.batch_size": batch_size,
            "train.schedule.lr": lr,
            "train.optimizer": optimizer,
            "train.averaging.enabled": averaging,
            "train.awp.enabled": awp,
            "seed": seed,
            **(options or {}),
        },
    )
    check(config)
    devices = [place] if place.type == "cuda" else []
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.random.fork_rng(devices))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="uiat-fit-")) if out is None else out)
        existing = RunFolder(folder) if RunFolder(folder).config.is_file() else None
        if existing is None:
            dry_build(config, splits, place)
            if note := large_rate(config):
                print_message(f"note: {note}")
        else:
            _check_same_call(existing, config)
        with nullcontext(existing) if existing else RunFolder.begin(folder, config) as run, StopSignal() as stop:
            keep_identity(run, splits, config)
            _keep_weights(run, template)
            finished = train_run(config, run, splits, place, stop=stop)
        if not finished:
            if out is None:
                print_message(f"note: {folder} is removed now; give `out` to be able to resume a training")
            raise KeyboardInterrupt if stop.exit_code == 130 else SystemExit(stop.exit_code)
        load_weights(model.to(place).eval(), run.weights())
        best, history = run.read_card()["best"], run.read_metrics("epoch")
    return FitResult(model, history, best, None if out is None else folder)


def override(config: AnyConfig, options: Mapping[str, Any]) -> AnyConfig:
    """Return the configuration with other values of some fields, which are given by dotted names.

    Scalars of NumPy, and tensors of one number, become numbers of Python, as they are saved.
    """
    for name, value in options.items():
        config = _replaced(config, name, name, value.item() if getattr(value, "ndim", None) == 0 else value)
    return config


def _replaced(part: Any, path: str, name: str, value: Any) -> Any:
    field, dot, rest = path.partition(".")
    known = [entry.name for entry in fields(part)] if is_dataclass(part) else []
    if field not in known or (is_dataclass(getattr(part, field)) and not dot):
        raise unknown("option", name, (name.removesuffix(path) + entry for entry in known))
    changed = replace(part, **{field: _replaced(getattr(part, field), rest, name, value) if dot else value})
    check_fields(changed)
    return changed


def _splits(model: nn.Module, train: Any, validation: Any) -> Splits:
    """Return the images, with as many classes as the network has logits; there are no test images."""
    images = gather_images(train, "the training set")
    count = count_classes(model, images.x)
    classes = images.classes if len(images.classes) == count else tuple(str(k) for k in range(count))
    images = replace(images, classes=classes)
    images.check("the training set")
    if validation is None:
        held = hold_out(images, default_validation(len(images)), SPLIT_SEED)
    else:
        second = gather_images(validation, "the validation set", classes)
        check_classes("the training set", {"classes": list(classes)}, second.classes, "the validation set")
        held = images, replace(second, classes=classes)
        held[1].check("the validation set")
    if held[1].spec.shape != images.spec.shape:
        raise UserError(
            f"training images have the shape {images.spec.shape}, and validation images {held[1].spec.shape}: they "
            "must have one shape."
        )
    return Splits(*held, test=images.part(0, 0))


def _check_same_call(run: RunFolder, config: AnyConfig) -> None:
    """Raise a `UserError` if a run in the folder was made with other arguments; more epochs may extend it."""
    saved, epochs = run.read_config(), config.train.epochs
    models = [saved.model, config.model]
    if len({model.tensors for model in models if isinstance(model, InMemory)}) > 1:
        raise UserError(
            f"the weights of the network that {run.path} was made with have other names, shapes or types: give that "
            "network to resume it, or another `out`."
        )
    longer = replace(saved, train=replace(saved.train, epochs=max(epochs, saved.train.epochs)))
    if changed := config_differences(longer, config, str(run.path), "this call"):
        raise UserError(f"{changed}: give the arguments of that run to resume it, or another `out`.")
    if longer != saved:
        run.change_config(extended(saved, epochs, run.count_epochs() + 1, run.path), run.read_imports())


def _keep_weights(run: RunFolder, network: nn.Module) -> None:
    """Keep the initial weights of a new run; load those of an existing one into the network."""
    if not run.initial.is_file():
        write_tensors(run.initial, network.state_dict())
        return
    if file_digest(run.initial) != weights_digest(network.state_dict()):
        print_message(f"note: {run.path} has its own weights: those of the given network are not used")
    load_weights(network, run.initial)
