"""Attacks by name, and the loop that runs them on a set of images."""

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from uiat.attacks import ATTACKS, BUNDLED, PGD, Attack
from uiat.crafting import crafting
from uiat.data.images import Images, to_unit
from uiat.distributed import all_reduce_sum, rank, world
from uiat.errors import unknown
from uiat.evaluation import autoattack
from uiat.evaluation.cascade import Component, Restart, natural_stage, run_cascade
from uiat.evaluation.custom_attack import AttackFunction, CustomAttack, definition, in_threat_model
from uiat.evaluation.evaluation_result import AttackResult, EvaluationResult, Key
from uiat.evaluation.ledger import Ledger, Stage
from uiat.progress import Ticker

DESCRIPTIONS: dict[str, str] = {
    "natural": "no attack",
    "fgsm": "one step of ε from the natural image",
    "pgd-K": "K steps of ε/4 on cross-entropy from a uniform start, such as pgd-20",
    "pgd-K-R": "the same with R random restarts, such as pgd-50-10",
    "pgd-margin-K": "PGD on the margin of the best wrong class; restarts as above",
    "cw": "40 steps on that margin, of 0.01 at ε = 8/255, else in proportion",
    "apgd-ce": "AutoAttack's APGD on cross-entropy",
    "apgd-dlr": "AutoAttack's APGD on the difference of logits ratio",
    "apgd-t": "AutoAttack's targeted APGD",
    "fab": "AutoAttack's FAB",
    "fab-t": "AutoAttack's targeted FAB",
    "square": "AutoAttack's Square, which needs no gradient",
    "autoattack": "the standard cascade: apgd-ce, apgd-t, fab-t, square",
    "autoattack-plus": "apgd-ce, apgd-dlr, fab (five restarts each), square, apgd-t, fab-t",
    "A+B+…": "a cascade of AutoAttack's components, such as apgd-ce+square",
}

CW_STEP = 0.01 / (8 / 255)
"""Step size of CW as a multiple of ε: 0.01 at 8/255."""


@dataclass(frozen=True)
class Plan:
    """An attack by name, its components and its setting."""

    name: str
    components: tuple[Component, ...]
    """Run one after another; empty for natural images."""
    setting: dict[str, Any]
    """Setting of the attack in a result card."""
    notices: tuple[str, ...] = ()
    eps: float = 0.0
    """Radius; below 0 for an inverse perturbation."""
    several_eps: bool = False
    """Whether attacks are run at several ε, so that ε is part of the key of the result."""
    every_image: bool = False
    """Whether misclassified images are perturbed, too."""

    @property
    def cost(self) -> float:
        """Passes for one example, roughly."""
        return sum(component.cost for component in self.components)

    @property
    def key(self) -> Key:
        """The key of the result."""
        return (self.name, self.eps) if self.several_eps else self.name

    @property
    def stage(self) -> str:
        """The name of the stage in a ledger."""
        return f"{self.name} at ε = {self.eps!r}" if self.several_eps else self.name

    @property
    def label(self) -> str:
        """What a progress bar shows."""
        return f"{self.name} at ε = {self.eps:.3g}" if self.several_eps else self.name


def plan_attack(name: str, base: PGD, *, num_classes: int, seed: int) -> Plan:
    """Return the plan of an attack in the threat model of `base` (its norm, ε and step size)."""
    threat = {"norm": base.norm, "eps": base.eps, "seed": seed}
    if name == "natural":
        return Plan(name, (), {})
    if name == "fgsm":
        return _ours(name, replace(base, step=base.eps, steps=1, start="none"), 1, threat)
    if name == "cw":
        return _ours(name, replace(base, step=CW_STEP * base.eps, steps=40, loss="margin"), 1, threat)
    if match := re.fullmatch(r"pgd-(margin-)?([1-9]\d*)(?:-([1-9]\d*))?", name):
        loss = "margin" if match[1] else "ce"
        attack = replace(base, steps=int(match[2]), loss=loss)  # type: ignore[arg-type]
        return _ours(name, attack, int(match[3] or 1), threat)
    if (registered := custom_attacks().get(name)) is not None:
        return plan_custom(name, in_threat_model(name, registered, base.eps, base.norm), base, seed=seed)
    version: autoattack.Version = "plus" if name == "autoattack-plus" else "standard"
    whole = name in ("autoattack", "autoattack-plus")
    names = autoattack.CASCADES[version] if whole else tuple(name.split("+"))
    if not set(names) <= set(autoattack.COMPONENT_NAMES):
        raise unknown(
            "attack",
            name,
            [*(n for n in DESCRIPTIONS if n.islower()), *custom_attacks(), "pgd-20", "pgd-50-10", "pgd-margin-20"],
        )
    parts, notices = autoattack.build_components(
        names, eps=base.eps, norm=base.norm, num_classes=num_classes, seed=seed, version=version
    )
    facts = {**threat, "version": version, "components": [part.name for part in parts]}
    return Plan(name, tuple(parts), facts, tuple(notices), base.eps)


def custom_attacks() -> dict[str, Attack]:
    """Return the registered attacks that are not of this package."""
    return {name: attack for name, attack in ATTACKS.items() if name not in BUNDLED}


def plan_custom(name: str, attack: Attack | AttackFunction, base: PGD, *, seed: int) -> Plan:
    """Return the plan of an attack object or function, whose examples must lie in the ball of `base`."""
    threat = {"norm": base.norm, "eps": base.eps, "seed": seed}
    if isinstance(attack, PGD):
        return _ours(name, attack, 1, threat)
    component = CustomAttack(attack, name, base.eps, base.norm, seed)
    return Plan(name, (component,), {**threat, "definition": definition(attack)}, eps=base.eps)


def _ours(name: str, attack: PGD, restarts: int, threat: dict[str, Any]) -> Plan:
    step = attack.eps / 4 if attack.step is None else attack.step
    facts = {"steps": attack.steps, "step": step, "start": attack.start, "loss": attack.loss, "restarts": restarts}
    parts = tuple(Restart(attack, attack.steps, int(threat["seed"]), k) for k in range(restarts))
    return Plan(name, parts, {**threat, **facts}, eps=attack.eps)


def run_suite(
    model: nn.Module, images: Images, names: Sequence[str], base: PGD, *, seed: int = 0, **how: Any
) -> EvaluationResult:
    """Measure accuracy under each named attack, in the threat model of `base`; see `run_plans`."""
    plans = [plan_attack(name, base, num_classes=len(images.classes), seed=seed) for name in dict.fromkeys(names)]
    return run_plans(model, images, plans, progress="evaluating", **how)


def run_plans(
    model: nn.Module,
    images: Images,
    plans: Sequence[Plan],
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    ledger: Ledger | None = None,
    keep: bool = False,
    progress: str = "",
) -> EvaluationResult:
    """Run attacks one after another; an attack sees only images that are classified correctly without it.

    With a ledger on disk, an interrupted evaluation resumes at its next batch and returns the same verdicts. Several
    processes share the images between them, and each returns the whole result. `keep` keeps the adversarial examples;
    `progress` labels the progress bar, and no bar is shown without it.
    """
    ledger = ledger or Ledger()
    work = sum(plan.cost for plan in plans) * len(images)
    mine = torch.arange(rank(), len(images), world())
    notices = [notice for plan in plans for notice in plan.notices]
    how: dict[str, Any] = {"batch_size": batch_size, "device": device}
    results: dict[Key, AttackResult] = {}
    with (
        crafting(model, "eval"),
        autoattack.collected_warnings() as warnings,
        Ticker(work, progress) if progress else nullcontext() as ticker,
    ):
        natural = ledger.begin("natural", torch.zeros(len(images), dtype=torch.bool))
        natural_stage(model, images, natural, mine, **how)
        if invalid := int(all_reduce_sum(torch.tensor(natural.invalid))):
            notices.append(f"{invalid} of {len(images)} images have NaN logits, and count as misclassified")
        if any("components" in plan.setting for plan in plans):
            x = to_unit(images.x[:batch_size].to(device))
            notices += autoattack.check_pitfalls(model, x, images.y[:batch_size].to(device))
        for plan in plans:
            stage, setting = natural, plan.setting
            if plan.components:
                attacked = torch.isin(torch.arange(len(images)), mine) if plan.every_image else natural.correct
                stage, setting = ledger.begin(plan.stage, attacked), {**plan.setting, "batch_size": batch_size}
                more: dict[str, Any] = {"keep": keep, "ticker": ticker, "label": plan.label}
                run_cascade(model, images, stage, plan.components, ledger=ledger, **more, **how)
            x_adv = _adversaries(stage, images, mine) if keep and plan.components else None
            stage = _gathered(stage)
            notices += autoattack.square_warning(stage.after)
            per_class = accuracy_per_class(stage.correct, images)
            checked = any(isinstance(component, CustomAttack) for component in plan.components)
            results[plan.key] = AttackResult(
                plan.name,
                plan.eps,
                stage.correct,
                stage.seconds,
                setting,
                stage.after,
                per_class,
                x_adv,
                stage.distance if checked else None,
            )
        accuracy = float(_gathered(natural).correct.double().mean())
    return EvaluationResult(results, accuracy, list(dict.fromkeys([*notices, *warnings])), torch.device(device))


def accuracy_per_class(correct: Tensor, images: Images) -> dict[str, float]:
    """Return the accuracy on each class that has an image."""
    total = images.y.bincount(minlength=len(images.classes)).tolist()
    right = images.y[correct].bincount(minlength=len(images.classes)).tolist()
    return {name: k / n for name, k, n in zip(images.classes, right, total, strict=True) if n}


def _adversaries(stage: Stage, images: Images, mine: Tensor) -> Tensor:
    """Return the x̂ of all images; each process has found those of its share."""
    x_adv = stage.adversaries(to_unit(images.x))
    if world() == 1:
        return x_adv
    share = torch.zeros_like(x_adv)
    share[mine] = x_adv[mine]
    return all_reduce_sum(share)


def _gathered(stage: Stage) -> Stage:
    """Combine the verdicts of all processes; each has those of its share of the images."""
    after = all_reduce_sum(torch.tensor(list(stage.after.values()), dtype=torch.float64)).tolist()
    correct = all_reduce_sum(stage.correct.int()).bool()
    distances = torch.zeros(world(), dtype=torch.float64)
    distances[rank()] = stage.distance
    distance = float(all_reduce_sum(distances).max())
    return replace(stage, correct=correct, after=dict(zip(stage.after, after, strict=True)), distance=distance)


def accuracy(
    model: nn.Module,
    images: Images,
    attack: Attack | None,
    *,
    batch_size: int = 256,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> AttackResult:
    """Classify every image, attacked if there is an attack, with running statistics and frozen parameters.

    The random start of an image depends on the seed and on its position in the data set alone. Several processes share
    the images between them, and each returns the whole result.
    """
    name, components = ("natural", ()) if attack is None else ("attack", (Restart(attack, 1, seed),))
    with crafting(model, "eval") as network:
        return run_plans(network, images, [Plan(name, components, {})], batch_size=batch_size, device=device)[name]
