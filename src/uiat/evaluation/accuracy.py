"""Accuracy of a network on images, natural or under one attack."""

import torch
from torch import nn

from uiat.attacks import Attack
from uiat.crafting import crafting
from uiat.data.images import Images
from uiat.evaluation.cascade import Restart
from uiat.evaluation.evaluation_result import AttackResult
from uiat.evaluation.suite import Plan, run_plans


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
