"""Accuracy of a network on images, natural or under one attack."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from uiat.attacks import Attack
from uiat.crafting import crafting
from uiat.data.images import Images
from uiat.distributed import all_reduce_sum, rank, world
from uiat.evaluation.cascade import Restart, natural_stage, run_cascade
from uiat.evaluation.intervals import wilson
from uiat.evaluation.ledger import Ledger, Stage


@dataclass(frozen=True)
class Accuracy:
    """The verdict on every example."""

    correct: Tensor
    """Whether each example was classified right: (examples,) of bool, on the CPU."""
    seconds: float
    """Wall-clock time it took."""
    setting: dict[str, Any] = field(default_factory=dict)
    """What the attack was."""
    after: dict[str, float] = field(default_factory=dict)
    """Accuracy after each component of a cascade."""
    x_adv: Tensor | None = None
    """The adversarial examples, if they were kept; the example itself where none was found."""

    @property
    def value(self) -> float:
        """The share that was right."""
        return float(self.correct.double().mean())

    def to_json(self) -> dict[str, Any]:
        """Return accuracy, its 95 % interval, the count and the setting."""
        right, n = int(self.correct.sum()), len(self.correct)
        facts = {"accuracy": right / n, "interval95": list(wilson(right, n)), "n": n, "seconds": round(self.seconds, 3)}
        return {**facts, **self.setting, **({"after": self.after} if len(self.after) > 1 else {})}


def accuracy(
    model: nn.Module,
    images: Images,
    attack: Attack | None,
    *,
    batch_size: int = 256,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Accuracy:
    """Classify every image, after an attack on it if there is one, with running statistics and frozen parameters.

    The random start of an image depends on the seed and on its place in the data set alone. Several processes share the
    images between them, and all get the whole verdict.
    """
    mine = torch.arange(rank(), len(images), world())
    with crafting(model, "eval") as network:
        stage = natural_stage(network, images, batch_size=batch_size, device=device, members=mine)
        if attack is not None:
            ledger = Ledger()
            ledger.stages["attack"] = Stage(stage.standing, stage.queue, seconds=stage.seconds)
            parts = [Restart(attack, 1, seed)]
            stage = run_cascade(network, images, "attack", parts, batch_size=batch_size, device=device, ledger=ledger)
    return Accuracy(all_reduce_sum(stage.standing.int()).bool(), stage.seconds)
