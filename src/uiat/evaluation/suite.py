"""Evaluation by name: which attacks, in which setting, with which result."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from uiat.attacks import PGD
from uiat.crafting import crafting
from uiat.data.images import Images, to_unit
from uiat.distributed import all_reduce_sum, rank, world
from uiat.errors import unknown
from uiat.evaluation import autoattack
from uiat.evaluation.accuracy import Accuracy
from uiat.evaluation.cascade import Component, Restart, natural_stage, run_cascade
from uiat.evaluation.ledger import Ledger, Stage
from uiat.progress import Ticker

DESCRIPTIONS: dict[str, str] = {
    "natural": "no attack",
    "fgsm": "one step of ε from the example itself",
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
"""Step of CW as a multiple of ε: 0.01 at 8/255."""


@dataclass(frozen=True)
class Plan:
    """An attack by name: the components it runs, what a card says of it, and what a person should know."""

    name: str
    components: tuple[Component, ...]
    setting: dict[str, Any]
    notices: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        """Passes for one example, roughly."""
        return sum(component.cost for component in self.components)


def plan_attack(name: str, base: PGD, *, num_classes: int, seed: int) -> Plan:
    """Return the plan of a name in the threat model of `base` (its norm, ε and step)."""
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
    version: autoattack.Version = "plus" if name == "autoattack-plus" else "standard"
    whole = name in ("autoattack", "autoattack-plus")
    names = autoattack.COMPONENTS[version] if whole else tuple(name.split("+"))
    if not set(names) <= set(autoattack.NAMES):
        raise unknown(
            "attack", name, [*(n for n in DESCRIPTIONS if n.islower()), "pgd-20", "pgd-50-10", "pgd-margin-20"]
        )
    parts, notices = autoattack.build_components(
        names, eps=base.eps, norm=base.norm, num_classes=num_classes, seed=seed, version=version
    )
    facts = {**threat, "version": version, "components": [part.name for part in parts]}
    return Plan(name, tuple(parts), facts, tuple(notices))


def _ours(name: str, attack: PGD, restarts: int, threat: dict[str, Any]) -> Plan:
    step = attack.eps / 4 if attack.step is None else attack.step
    facts = {"steps": attack.steps, "step": step, "start": attack.start, "loss": attack.loss, "restarts": restarts}
    parts = tuple(Restart(attack, attack.steps, int(threat["seed"]), k) for k in range(restarts))
    return Plan(name, parts, {**threat, **facts})


@dataclass
class SuiteResult:
    """The verdicts by attack, and what a person should know of them."""

    attacks: dict[str, Accuracy]
    notices: list[str]


def run_suite(
    model: nn.Module,
    images: Images,
    names: Sequence[str],
    base: PGD,
    *,
    batch_size: int = 256,
    seed: int = 0,
    device: torch.device | str = "cpu",
    ledger: Ledger | None = None,
    keep: bool = False,
) -> SuiteResult:
    """Measure accuracy under each attack; an attack touches only what is classified right without one.

    With a ledger on disk, a killed suite goes on with the next batch and ends with the same verdicts. Several processes
    share the images between them, and all get the whole result.
    """
    ledger = ledger or Ledger()
    classes = images.spec.num_classes
    plans = [plan_attack(name, base, num_classes=classes, seed=seed) for name in dict.fromkeys(names)]
    work = sum(plan.cost for plan in plans) * len(images)
    mine = torch.arange(rank(), len(images), world())
    setting = {"batch_size": batch_size}
    notices = [notice for plan in plans for notice in plan.notices]
    attacks: dict[str, Accuracy] = {}
    with crafting(model, "eval"), autoattack.collected_warnings() as warnings, Ticker(work, "evaluating") as ticker:
        if "natural" not in ledger.stages:
            ledger.stages["natural"] = natural_stage(model, images, batch_size=batch_size, device=device, members=mine)
        natural = ledger.stages["natural"]
        if invalid := int(all_reduce_sum(torch.tensor(natural.invalid))):
            notices.append(f"{invalid} of {len(images)} images have NaN logits, and count as misclassified")
        if any("components" in plan.setting for plan in plans):
            x = to_unit(images.x[:batch_size].to(device))
            notices += autoattack.check_pitfalls(model, x, images.y[:batch_size].to(device))
        for plan in plans:
            if plan.name != "natural" and plan.name not in ledger.stages:
                ledger.stages[plan.name] = Stage(natural.standing.clone(), natural.queue)
            stage = natural
            if plan.components:
                stage = run_cascade(
                    model,
                    images,
                    plan.name,
                    plan.components,
                    batch_size=batch_size,
                    device=device,
                    ledger=ledger,
                    keep=keep,
                    advance=lambda work, label, free: ticker.advance(work, label, free=free),
                )
            x_adv = _adversaries(stage, images, mine) if keep and plan.components else None
            stage = _together(stage)
            notices += autoattack.square_warning(stage.after)
            facts = {**plan.setting, **(setting if plan.components else {})}
            attacks[plan.name] = Accuracy(stage.standing, stage.seconds, facts, stage.after, x_adv)
    return SuiteResult(attacks, list(dict.fromkeys([*notices, *warnings])))


def _adversaries(stage: Stage, images: Images, mine: Tensor) -> Tensor:
    """Return the x̂ of all images, of which each process has found those of its own."""
    x_adv = stage.adversaries(to_unit(images.x))
    if world() == 1:
        return x_adv
    share = torch.zeros_like(x_adv)
    share[mine] = x_adv[mine]
    return all_reduce_sum(share)


def _together(stage: Stage) -> Stage:
    """Put the verdicts of all processes together; each knows only of its own images."""
    if world() == 1:
        return stage
    after = all_reduce_sum(torch.tensor(list(stage.after.values()), dtype=torch.float64)).tolist()
    standing = all_reduce_sum(stage.standing.int()).bool()
    return replace(stage, standing=standing, after=dict(zip(stage.after, after, strict=True)))
