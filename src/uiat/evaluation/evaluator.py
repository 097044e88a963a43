"""Evaluating a network: `uiat.evaluate` for anyone's in memory, and what `uiat evaluate` does with a run or weights."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uiat.attacks import PGD
from uiat.balls import Norm
from uiat.config import encode
from uiat.crafting import crafting
from uiat.data.fetch import cache_folder
from uiat.data.images import Images, to_unit
from uiat.distributed import rank, world
from uiat.errors import UserError
from uiat.evaluation.accuracy import Accuracy
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.subject import LoadedSubject
from uiat.evaluation.suite import SuiteResult, run_suite
from uiat.io import write_tensors
from uiat.runs.result_card import evaluation_card
from uiat.runs.weights import DIGEST
from uiat.types import check_logits


def evaluate(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    attacks: Sequence[str] = ("natural", "pgd-20"),
    *,
    eps: float = 8 / 255,
    step: float | None = None,
    norm: Norm = "linf",
    batch_size: int = 256,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure the accuracy of a classifier, natural and attacked, and return a card of the results.

    The network is used as it is, in eval mode, on the device of its parameters, and left as it was. A card has, under
    `attacks`, each attack with its accuracy, 95 % interval, accuracy by class and setting.

    >>> card = evaluate(model, x, y, attacks=("natural", "pgd-20"), eps=8 / 255)
    >>> sorted(card["attacks"])
    ['natural', 'pgd-20']

    Args:
        model: returns logits for images in [0, 1]; normalisation belongs inside it.
        x: images (N, C, H, W), floats in [0, 1] or bytes.
        y: labels (N,), int64.
        attacks: names as in `uiat list attacks`, such as "autoattack".
        eps: the radius.
        step: length of a PGD step; `None` is ε/4.
        norm: "linf" or "l2".
        batch_size: images attacked at a time.
        seed: decides the random starts.
    """
    device = next((parameter.device for parameter in model.parameters()), x.device)
    base = PGD(eps=eps, step=step, steps=20, norm=norm)
    if batch_size < 1:
        raise UserError(f"the batch size is {batch_size}: give at least 1.")
    images = _images(model, x.cpu(), y.cpu(), device)
    measured = run_suite(model, images, attacks, base, batch_size=batch_size, seed=seed, device=device)
    return evaluation_card(_results(measured, images), measured.notices, device)


def _images(model: nn.Module, x: Tensor, y: Tensor, device: torch.device) -> Images:
    """Return images with as many classes as the network has logits; raise a `UserError` that names what is wrong."""
    if y.ndim != 1 or y.dtype != torch.int64 or len(x) != len(y) or not len(x):
        raise UserError(
            f"labels are {y.dtype} of shape {tuple(y.shape)} for {len(x)} images: give one int64 label an image."
        )
    if x.is_floating_point() and not bool((x.min() >= 0) & (x.max() <= 1)):
        raise UserError(
            "pixels lie outside [0, 1] or are NaN: give images in [0, 1], normalise inside the model (uiat.Normalized)."
        )
    if not x.is_floating_point() and x.dtype != torch.uint8:
        raise UserError(f"images are {x.dtype}: give floats in [0, 1], or bytes.")
    with torch.no_grad(), crafting(model, "eval") as network:
        logits = network(to_unit(x[:2].to(device)))
    classes = logits.shape[1] if isinstance(logits, Tensor) and logits.ndim == 2 else 0
    check_logits(logits, len(x[:2]), classes)
    if int(y.min()) < 0 or int(y.max()) >= classes:
        raise UserError(f"labels go from {int(y.min())} to {int(y.max())}, but the network has {classes} logits.")
    return Images(x, y, tuple(str(k) for k in range(classes)))


def evaluate_subject(
    ready: LoadedSubject, attacks: Sequence[str], ledger: Ledger, *, keep: bool = False
) -> SuiteResult:
    """Measure an opened run, or opened weights; a ledger that holds an interrupted evaluation goes on with it."""
    options = ready.options
    return run_suite(
        ready.fast,
        ready.images,
        attacks,
        ready.base,
        batch_size=options.batch_size,
        seed=options.seed,
        device=ready.device,
        ledger=ledger,
        keep=keep,
    )


def open_ledger(ready: LoadedSubject, attacks: Sequence[str], keep: bool, restart: bool) -> Ledger:
    """Return the ledger of exactly this evaluation: the same weights, images, attacks and settings.

    It is in the run's folder, or in the cache folder for bare weights and for a run that cannot be written. A second
    process with it is refused.
    """
    facts = encode([ready.options, ready.base, list(attacks), keep, torch.__version__, rank(), world()])
    digest = hashlib.sha256(json.dumps(facts).encode())
    for tensor in [*ready.model.state_dict().values(), ready.images.x, ready.images.y]:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    key = digest.hexdigest()[:32]
    folder = cache_folder() / "evaluations"
    if ready.run is not None and ready.run.is_writable():
        ready.run.check_links()
        folder = ready.run.path
    return Ledger(folder / f"evaluation-{key}.safetensors", key, exclusive=True, restart=restart)


def subject_card(ready: LoadedSubject, measured: SuiteResult) -> dict[str, Any]:
    """Return the card of an evaluation of a run or of weights; every attack carries its own setting."""
    return evaluation_card(
        _results(measured, ready.images),
        measured.notices,
        ready.device,
        weights=ready.weights_file.name,
        data=ready.options.data.name,
        split="test",
        sample=ready.options.sample if ready.options.n is not None else "all",
        exact=ready.options.exact,
        folded_batchnorms=ready.folds,
        processes=world(),
        **{DIGEST: ready.digest},
    )


def write_adversaries(path: Path, ready: LoadedSubject, measured: SuiteResult) -> None:
    """Write the adversarial examples and the verdicts of every attack, and the labels, as safetensors."""
    tensors = {f"{name}/x_adv": a.x_adv for name, a in measured.attacks.items() if a.x_adv is not None}
    tensors |= {f"{name}/correct": a.correct for name, a in measured.attacks.items()}
    write_tensors(path, {**tensors, "y": ready.images.y})


def _results(measured: SuiteResult, images: Images) -> dict[str, dict[str, Any]]:
    return {name: {**a.to_json(), "per_class": per_class(a, images)} for name, a in measured.attacks.items()}


def per_class(accuracy: Accuracy, images: Images) -> dict[str, float]:
    """Return the accuracy of each class that has an example."""
    return {name: float(accuracy.correct[images.y == c].double().mean()) for c, name in present(images)}


def present(images: Images) -> list[tuple[int, str]]:
    """Return the number and name of each class that has an example."""
    return [(c, name) for c, name in enumerate(images.classes) if bool((images.y == c).any())]
