"""Evaluation by name: which attacks, in which setting, with which result."""

import re
from collections.abc import Callable, Sequence
from math import inf

import torch
from torch import nn

from uiat.attacks import PGD, Attack
from uiat.data.images import Images
from uiat.errors import UserError, unknown
from uiat.evaluation.accuracy import Accuracy, accuracy

DESCRIPTIONS: dict[str, str] = {
    "natural": "no attack",
    "fgsm": "one sign step of ε",
    "pgd-K": "K steps of ε/4 on cross-entropy from a uniform start, such as pgd-20",
}


def named_attack(name: str, base: PGD) -> Attack | None:
    """Return the attack of a name in the threat model of `base` (its ε, step and norm); none for `natural`."""
    if name == "natural":
        return None
    if name == "fgsm":
        return PGD(eps=base.eps, step=base.eps, steps=1, start="none", norm=base.norm)
    match = re.fullmatch(r"pgd-([1-9]\d*)", name)
    if match is None:
        raise unknown("attack", name, ["natural", "fgsm", "pgd-20"])
    return PGD(eps=base.eps, step=base.step, steps=int(match[1]), norm=base.norm)


def run_suite(
    model: nn.Module,
    images: Images,
    names: Sequence[str],
    base: PGD,
    *,
    batch_size: int,
    seed: int,
    device: torch.device | str,
    advance: Callable[[int], object] = lambda done: None,
) -> dict[str, Accuracy]:
    """Return the accuracy under each attack."""
    if not 0 <= base.eps < inf:
        raise UserError(f"ε is {base.eps}, but a radius is a number from 0 on.")
    attacks = {name: named_attack(name, base) for name in names}
    return {
        name: accuracy(model, images, attack, batch_size=batch_size, seed=seed, device=device, advance=advance)
        for name, attack in attacks.items()
    }
