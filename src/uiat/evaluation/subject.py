"""The subject of an evaluation: a network from a run, an export or a weights file, and the images."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal

import torch
from torch import nn

from uiat import data as data_sets
from uiat.attacks import PGD
from uiat.balls import Norm
from uiat.config import ModelT
from uiat.config_json import encode
from uiat.data.data_config import DataConfig
from uiat.data.fetch import cache_folder
from uiat.data.images import Images, balanced
from uiat.distributed import local_device, pick_device, rank, world
from uiat.errors import UserError
from uiat.evaluation.custom_attack import definition
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.suite import custom_attacks
from uiat.fields import check_numbers, unchecked
from uiat.models.fast import speed_up, to_channels_last
from uiat.models.probe import network_name, trial_batch, try_forward, untouched
from uiat.models.wrappers import statistics_of
from uiat.runs.identity import check_channels, check_classes, find_data, find_network, is_run_data
from uiat.runs.run_folder import RunFolder, Weights
from uiat.runs.saved import build, read_export
from uiat.runs.weights import DIGEST, file_digest


@dataclass(frozen=True)
class Subject(Generic[ModelT]):
    """The network and the images of an evaluation."""

    data: DataConfig
    """The data set, of which the test images are used."""
    model: ModelT
    """The network."""
    mean: tuple[str, ...] = ()
    """For a weights file of a network that was trained on normalised images: the mean of each channel of images in
    [0, 1], or a name (cifar10, cifar100, svhn, imagenet), which also sets --std."""
    std: tuple[str, ...] = ()
    """The standard deviation of each channel, or a name."""
    weights: Weights = "best"
    """Of a run: the weights of the best epoch on the validation split, or of the last epoch; averaged where the run
    averages, unless `-raw`."""
    n: int | None = None
    """Number of test images; all by default."""
    sample: Literal["first", "balanced"] = "first"
    """Which test images, with --n: the first ones, or equally many of each class, drawn with the seed."""
    eps: float | None = None
    """Radius of the attacks; by default that of the validation attack of a run, or 8/255 for bare weights."""
    step: float | None = None
    """Step size of PGD; by default that of the validation attack of a run, or ε/4."""
    norm: Norm | None = None
    """Norm of the attacks, linf or l2; by default that of the validation attack of a run, or linf for bare weights."""
    exact: bool = False
    """Use the unmodified network; by default BatchNorm is folded and memory is channels_last, which is faster and
    rounds differently."""
    batch_size: int = 256
    """Images per batch; AutoAttack's random numbers depend on it."""
    seed: int = 0
    """Seed of the random starts and of a balanced sample."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto is the GPU if there is one."""
    data_dir: str | None = None
    """Folder of data sets and downloads; by default $UIAT_DATA, or a cache folder."""


@dataclass(frozen=True)
class LoadedSubject:
    """A subject, loaded."""

    target: Path
    run: RunFolder | None
    weights_file: Path
    """The file the weights came from."""
    options: Subject[Any]
    model: nn.Module
    """The unmodified network, in eval mode with frozen parameters."""
    fast: nn.Module
    """The network to attack: an accelerated copy, or `model` itself."""
    images: Images
    train: Images
    base: PGD
    """The threat model: norm, ε and the step size of PGD."""
    device: torch.device
    folds: int
    """How many BatchNorms are folded in `fast`."""
    digest: str
    """Digest of the weights."""


def load_subject(target: Path, options: Subject[Any], splits: data_sets.Splits | None = None) -> LoadedSubject:
    """Load the network and the images (unless `splits` are given), and choose the threat model."""
    export = read_export(target) if target.is_dir() else None
    run = RunFolder.open(target) if target.is_dir() and export is None else None
    base = PGD(step=None, steps=20) if export is None else export.base
    if run is not None:
        config = run.read_config()
        base = config.validate.attack(config.method)
    changes = {k: v for k in ("eps", "step", "norm") if (v := getattr(options, k)) is not None}
    if base.step is not None and "step" not in changes and "eps" in changes:
        changes["step"] = base.step * changes["eps"] / base.eps if base.eps else None
    with unchecked():
        base = replace(base, **changes)
    check_numbers(base, "--")
    check_numbers(options.data, "data.")
    if options.batch_size < 1:
        raise UserError(f"--batch-size is {options.batch_size}: give at least 1.")
    device = local_device(pick_device(options.device))
    if run is not None:
        find_network(run, options.model)
    splits = splits or _load(run, options)
    trained = run.read_data() if run is not None else export.data if export is not None else {}
    check_classes(target, trained, splits.train.classes, options.data.name)
    check_channels(target, trained, splits.spec.shape[0], options.data.name)
    images = _sample(splits.test, options)
    file = target if run is None else run.find_weights(options.weights)
    file = file if export is None else export.weights_file(options.weights)
    digest = file_digest(file) if file.is_file() else ""  # before loading: weights replaced in between have another
    model = build(options.model, splits.spec, file).to(device).requires_grad_(False)
    subject = LoadedSubject(target, run, file, options, model, model, images, splits.train, base, device, 0, digest)
    trial = trial_batch(splits.spec, device)
    with untouched(model), torch.no_grad():
        try_forward(model, trial, splits.spec, network_name(options.model))
    if options.exact:
        return subject
    fast = speed_up(to_channels_last(model, trial), trial)
    return replace(subject, fast=fast.crafting_network(), folds=fast.folds)


def _load(run: RunFolder | None, options: Subject[Any]) -> data_sets.Splits:
    """Load the data; the run's own data, given under a new path, is split as it was for the run.

    Split under the new path, some of the run's training images would become test images.
    """
    given = options.data
    if run is None:
        return data_sets.load_splits(given, options.data_dir)
    trained = run.read_config().data
    if given.name not in (trained.name, *data_sets.SOURCES) and given == DataConfig(
        given.name, size=trained.size, download=trained.download
    ):
        with suppress(UserError):  # other data need not have the run's parts
            splits = data_sets.load_splits(find_data(run, replace(trained, name=given.name)), options.data_dir)
            if is_run_data(run, splits):
                return splits
    return data_sets.load_splits(find_data(run, given), options.data_dir)


def _sample(images: Images, options: Subject[Any]) -> Images:
    if options.n is None:
        return images
    if not 0 < options.n <= len(images):
        raise UserError(f"--n is {options.n}, but the test set has {len(images)} images: give 1 to {len(images)}.")
    first = torch.arange(options.n)
    return images.take(first if options.sample == "first" else balanced(images.y, options.n, options.seed))


def measured_facts(subject: LoadedSubject) -> dict[str, Any]:
    """Return what accuracies belong to, for a JSON file: weights, normalisation (if a layer is known to do it), images.

    `folded_batchnorms` is the number of layers that were folded for the attacks.
    """
    options, known = subject.options, statistics_of(subject.model)
    return {
        "weights": subject.weights_file.name,
        DIGEST: subject.digest,
        **({} if known is None else {"mean": known[0], "std": known[1]}),
        "data": options.data.name,
        "split": "test",
        "sample": options.sample if options.n is not None else "all",
        "exact": options.exact,
        "folded_batchnorms": subject.folds,
    }


def subject_facts(subject: LoadedSubject) -> dict[str, Any]:
    """Return the description of a subject for a JSON file."""
    options = subject.options
    return {
        "schema": 1,
        "target": subject.target.name,
        **measured_facts(subject),
        "model": encode(options.model),
        "n": len(subject.images),
        "batch_size": options.batch_size,
        "seed": options.seed,
    }


def open_ledger(subject: LoadedSubject, attacks: Sequence[str], keep: bool, restart: bool) -> Ledger:
    """Return the ledger of exactly this evaluation: the same weights, images, attacks and settings.

    It is in the run's folder; in the cache folder for bare weights and for a run that cannot be written. A second
    process that opens it is refused.
    """
    custom = [definition(attack) for name, attack in custom_attacks().items() if name in attacks]
    facts = encode([subject.options, subject.base, list(attacks), custom, keep, torch.__version__, rank(), world()])
    digest = hashlib.sha256(json.dumps(facts).encode())
    for tensor in [*subject.model.state_dict().values(), subject.images.x, subject.images.y]:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    key = digest.hexdigest()[:32]
    folder = cache_folder() / "evaluations"
    if subject.run is not None and subject.run.is_writable():
        subject.run.check_links()
        folder = subject.run.path
    return Ledger(folder / f"evaluation-{key}.safetensors", key, exclusive=True, restart=restart)
