"""Evaluation of a network: `uiat.evaluate` for one in memory, and the parts of `uiat evaluate` for runs and weights."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uiat.attacks import PGD
from uiat.balls import Norm
from uiat.config_json import encode
from uiat.data.fetch import cache_folder
from uiat.data.images import Images
from uiat.distributed import rank, world
from uiat.errors import UserError
from uiat.evaluation.batches import read_tensors
from uiat.evaluation.custom_attack import AnyAttack, attack_names, check_attack, definition
from uiat.evaluation.evaluation_result import EvaluationResult
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.subject import LoadedSubject, count_classes, measured_facts
from uiat.evaluation.suite import Plan, custom_attacks, plan_attack, plan_custom, run_plans, run_suite
from uiat.fields import number_argument, show_number
from uiat.io import write_tensors


def evaluate(
    model: nn.Module,
    x: Tensor | np.ndarray[Any, Any] | Images | Iterable[Any],
    y: Tensor | np.ndarray[Any, Any] | None = None,
    attacks: AnyAttack | Sequence[AnyAttack] = ("natural", "pgd-20"),
    *,
    eps: float | Iterable[float] | None = None,
    step: float | None = None,
    norm: Norm = "linf",
    batch_size: int = 256,
    seed: int = 0,
) -> EvaluationResult:
    """Measure natural and robust accuracy of a classifier, with 95 % confidence intervals.

    The network is evaluated in eval mode on the device of its parameters; its modes and flags are restored afterwards.

    >>> result = evaluate(model, x, y, attacks=("natural", "pgd-20"), eps=8 / 255)
    >>> print(result)
    attack...
    >>> 0 <= result["pgd-20"].accuracy <= result.natural <= 1
    True
    >>> low, high = result["pgd-20"].interval  # 95 % confidence interval
    >>> result["pgd-20"].correct.shape  # one verdict an image
    torch.Size([4])

    With several ε, natural images are classified once, and results are looked up by attack and ε:

    >>> result = evaluate(model, x, y, attacks=("natural", "pgd-20"), eps=[2 / 255, 8 / 255])
    >>> for (attack, eps), found in result.items():
    ...     print(f"{attack} at {eps:.3f} on {len(found.correct)} images")
    natural at 0.000 on 4 images
    pgd-20 at 0.008 on 4 images
    pgd-20 at 0.031 on 4 images
    >>> result["pgd-20", 8 / 255].setting["steps"]
    20

    Images may come from a `DataLoader`, and attacks may be objects or functions:

    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> def noise(model, x, y):
    ...     return (x + 8 / 255 * torch.randn_like(x).sign()).clamp(0, 1)
    >>> loader = DataLoader(TensorDataset(x, y), batch_size=2)
    >>> result = evaluate(model, loader, attacks=(PGD(steps=50), noise), eps=8 / 255)
    >>> list(result)
    ['PGD(steps=50)', 'noise']

    Args:
        model: returns logits for images in [0, 1]; normalisation belongs inside it (`uiat.Normalized`).
        x: images (N, C, H, W), floats in [0, 1] or bytes, as a tensor or a NumPy array. Or an iterable of batches, such
            as a `DataLoader`: (x, y), (index, x, y), or dicts with images and labels; it is read once, into memory,
            and verdicts have its order. Or images that `uiat.images` returns, such as `uiat.images("runs/b").test`.
        y: labels (N,), integers; given with tensors and arrays only.
        attacks: one or several: names as in `uiat list attacks`, such as "autoattack"; attack objects, such as
            `PGD(steps=50)`, which have their own ε and norm; functions of (model, x, y) that return x̂. A `UserError`
            is raised if x̂ leaves the ball of radius ε or the range [0, 1].
        eps: the radius, or several; `None` is 8/255.
        step: step size of PGD; `None` is ε/4.
        norm: "linf" or "l2"; the ball of attacks that do not have their own.
        batch_size: images attacked at a time.
        seed: of the random starts.

    Returns:
        A mapping from attacks to results with `accuracy`, `interval`, `correct`, `per_class` and `setting`; its
        `natural` is the natural accuracy, and its `to_dict()` a card for JSON.
    """
    x, y = read_tensors(x, y)
    several = isinstance(eps, Iterable) and not isinstance(eps, str) and getattr(eps, "ndim", 1) > 0
    every: Iterable[Any] = eps if several else [8 / 255 if eps is None else eps]  # type: ignore[assignment]
    radii = list(dict.fromkeys(number_argument("eps", radius) for radius in every))
    step = None if step is None else number_argument("step", step)
    if not radii:
        raise UserError("eps is empty: give one radius or more, such as eps=[2/255, 8/255].")
    bases = [PGD(eps=radius, step=step, steps=20, norm=norm) for radius in radii]
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}: give at least 1.")
    images = _images(model, x.cpu(), y.cpu())
    device = next((parameter.device for parameter in model.parameters()), x.device)
    single = isinstance(attacks, str) or callable(attacks) or not isinstance(attacks, Iterable)
    given: list[Any] = [attacks] if single else list(attacks)  # type: ignore[arg-type]
    for attack in given:
        if not isinstance(attack, str):
            check_attack(attack)
    named = [attack for k, attack in enumerate(given) if not isinstance(attack, str) or attack not in given[:k]]
    plans: list[Plan] = []
    for name, attack in zip(attack_names(named), named, strict=True):
        if isinstance(attack, str):
            chosen = bases[:1] if attack == "natural" else bases
            plans += [plan_attack(attack, base, num_classes=len(images.classes), seed=seed) for base in chosen]
        else:
            plans.append(
                plan_custom(name, attack, _threat_model(name, attack, bases, fixed=eps is not None), seed=seed)
            )
    plans = [replace(plan, several_eps=several) for plan in plans]
    return run_plans(model, images, plans, batch_size=batch_size, device=device, progress="evaluating")


def _threat_model(name: str, attack: Any, bases: Sequence[PGD], *, fixed: bool) -> PGD:
    """Return ε and norm of an attack object, which must be among the given ones; those given, for a function."""
    own = getattr(attack, "eps", None)
    if own is None and len(bases) > 1:
        raise UserError(f"the attack {name!r} has no `eps`, and there are several: give one.")
    if own is None:
        return bases[0]
    if fixed and own not in [base.eps for base in bases]:
        known = ", ".join(show_number(base.eps) for base in bases)
        raise UserError(
            f"the attack {name!r} has ε = {show_number(own)}, and eps is {known}: give both the same, or omit eps."
        )
    return PGD(eps=own, norm=getattr(attack, "norm", "linf"))


def _images(model: nn.Module, x: Tensor, y: Tensor) -> Images:
    """Return images with as many classes as the network has logits; raise a `UserError` if they are invalid."""
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
    classes = count_classes(model, x)
    if int(y.min()) < 0 or int(y.max()) >= classes:
        raise UserError(f"labels go from {int(y.min())} to {int(y.max())}, but the network has {classes} logits.")
    return Images(x, y, tuple(str(k) for k in range(classes)))


def evaluate_subject(
    subject: LoadedSubject, attacks: Sequence[str], ledger: Ledger, *, keep: bool = False
) -> EvaluationResult:
    """Evaluate the network of a run, an export or a weights file; resume an evaluation that the ledger holds."""
    options = subject.options
    return run_suite(
        subject.fast,
        subject.images,
        attacks,
        subject.base,
        batch_size=options.batch_size,
        seed=options.seed,
        device=subject.device,
        ledger=ledger,
        keep=keep,
    )


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


def subject_card(subject: LoadedSubject, result: EvaluationResult) -> dict[str, Any]:
    """Return the card of an evaluation of a run or of weights; every attack carries its own setting."""
    return result.to_dict(**measured_facts(subject), processes=world())


def write_adversaries(path: Path, result: EvaluationResult, y: Tensor) -> None:
    """Write the adversarial examples and the verdicts of every attack, and the labels, as safetensors."""
    tensors = {f"{name}/x_adv": found.x_adv for name, found in result.items() if found.x_adv is not None}
    tensors |= {f"{name}/correct": found.correct for name, found in result.items()}
    write_tensors(path, {**tensors, "y": y})
