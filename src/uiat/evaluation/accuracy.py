"""Accuracy of a network on images, natural or under attack."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from uiat.attacks import Attack
from uiat.crafting import crafting
from uiat.data.images import Images
from uiat.data.loader import plain
from uiat.evaluation.intervals import wilson
from uiat.rng import Draws


@dataclass(frozen=True)
class Accuracy:
    """The verdict on every example."""

    correct: Tensor
    """Whether each example was classified right: (examples,) of bool, on the CPU."""
    seconds: float
    """Wall-clock time it took."""

    @property
    def value(self) -> float:
        """The share that was right."""
        return float(self.correct.double().mean())

    def to_json(self) -> dict[str, Any]:
        """Return accuracy, its 95 % interval and the count."""
        right, n = int(self.correct.sum()), len(self.correct)
        return {
            "accuracy": right / n,
            "interval95": list(wilson(right, n)),
            "n": n,
            "seconds": round(self.seconds, 3),
        }


def accuracy(
    model: nn.Module,
    images: Images,
    attack: Attack | None,
    *,
    batch_size: int = 256,
    seed: int = 0,
    device: torch.device | str = "cpu",
    advance: Callable[[int], object] = lambda done: None,
) -> Accuracy:
    """Attack every image (none: natural accuracy) and classify it, with running statistics and frozen parameters.

    The random start of an image depends on the seed and on its place in its batch, so the batch size is part of the
    setting. `advance` is told the number of images done after each batch.
    """
    began, correct = time.perf_counter(), []
    with crafting(model, "eval"):
        for step, batch in enumerate(plain(images, batch_size, device)):
            x = batch.x if attack is None else attack(model, batch.x, batch.y, Draws(seed, 0, step))
            with torch.no_grad():
                correct.append((model(x).argmax(dim=1) == batch.y).cpu())
            advance(len(batch))
    return Accuracy(torch.cat(correct), time.perf_counter() - began)
