"""`uiat.evaluate`: accuracy and robustness of a network in memory, on images in memory or from a loader."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uiat.attacks import PGD
from uiat.balls import Norm
from uiat.crafting import crafting
from uiat.data.images import Images, to_unit
from uiat.data.in_memory import columns
from uiat.errors import UserError, first_line
from uiat.evaluation.custom_attack import AnyAttack, attack_names, check_attack
from uiat.evaluation.evaluation_result import EvaluationResult
from uiat.evaluation.suite import Plan, plan_attack, plan_custom, run_plans
from uiat.fields import number_argument, show_number
from uiat.types import check_logits


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


def count_classes(model: nn.Module, x: Tensor) -> int:
    """Return the number of logits of a network in memory, from its output for the first two of the images x."""
    if not isinstance(model, nn.Module):
        raise UserError(f"the model is of type {type(model).__name__}: give a torch.nn.Module that returns logits.")
    x = to_unit(x[:2].to(next((parameter.device for parameter in model.parameters()), x.device)))
    try:
        with torch.no_grad(), crafting(model) as network:
            logits = network(x)
    except UserError:
        raise
    except Exception as error:  # a custom forward may raise anything; the cause is kept for a debugger
        raise UserError(
            f"the model fails on float32 images of shape {tuple(x.shape)} ({first_line(error)}): let it take these."
        ) from error
    classes = logits.shape[1] if isinstance(logits, Tensor) and logits.ndim == 2 else 0
    check_logits(logits, len(x), classes)
    return classes


def read_tensors(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return images and labels of tensors, arrays, `uiat.images`, or batches."""
    if isinstance(x, Images) and y is None:
        return x.x, x.y
    if isinstance(x, Tensor | np.ndarray):
        if y is None:
            raise UserError("there are images without labels: give y, or batches of both, such as a DataLoader.")
        return _tensor(x), _labels(y)
    if y is not None:
        raise UserError(f"x is a {type(x).__name__}: with y, give a tensor or a NumPy array.")
    try:
        iterator = iter(x)
    except TypeError:
        raise UserError(f"x is of type {type(x).__name__}: give images, or batches such as a DataLoader.") from None
    batches = [_pair(batch) for batch in iterator]
    if not batches:
        raise UserError("the data has no batches: give at least one.")
    if len({(x.shape[1:], x.dtype) for x, _ in batches}) > 1:
        raise UserError("the images of the batches have several shapes or types: give all the same.")
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def _pair(batch: Any) -> tuple[Tensor, Tensor]:
    """Return images and labels of a batch."""
    try:
        if not isinstance(batch, Mapping) and not (isinstance(batch, tuple | list) and len(batch) in (2, 3)):
            raise ValueError(
                f"it is {type(batch).__name__}: give (x, y), (index, x, y), or a dict with image and label"
            )
        images, labels = columns(batch) if isinstance(batch, Mapping) else batch[-2:]
    except ValueError as error:
        raise UserError(f"a batch cannot be used: {error}.") from None
    x, y = _tensor(images), _labels(labels)
    if y.ndim != 1 or len(x) != len(y):
        raise UserError(f"a batch has images {tuple(x.shape)} and labels {tuple(y.shape)}: give batches, not samples.")
    return x.cpu(), y.cpu()


def _tensor(values: Any, what: str = "images") -> Tensor:
    """Return an array as a tensor; NumPy's float64 becomes float32. A read-only array, or a reversed one, is copied."""
    try:
        tensor = torch.as_tensor(
            np.require(values, requirements=("C", "W")) if isinstance(values, np.ndarray) else values
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"the {what} are of type {type(values).__name__}, not numbers ({first_line(error)}).") from None
    return tensor.float() if isinstance(values, np.ndarray) and tensor.is_floating_point() else tensor


def _labels(values: Any) -> Tensor:
    """Return labels as int64, whatever the type of integers."""
    labels = _tensor(values, "labels")
    integers = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    return labels.long() if integers else labels
