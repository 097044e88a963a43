"""Results of an evaluation: verdicts on single images, accuracies and 95 % confidence intervals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uiat.evaluation.intervals import wilson
from uiat.fields import show_number
from uiat.io import write_tensors
from uiat.runs.result_card import evaluation_card

Key = str | tuple[str, float]
"""The name of an attack, or its name and ε."""


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Accuracy on natural images, or under one attack."""

    attack: str
    """The name of the attack; `natural` for none."""
    eps: float
    """Radius of the attack; 0 for natural images."""
    correct: Tensor
    """Whether each image is classified correctly: (images,) of bool, on the CPU."""
    seconds: float
    """Wall-clock time."""
    setting: dict[str, Any] = field(default_factory=dict)
    """The attack's norm, ε, seed, steps and so on; empty for natural images."""
    after: dict[str, float] = field(default_factory=dict)
    """Accuracy after each component of a cascade."""
    per_class: dict[str, float] = field(default_factory=dict)
    """Accuracy on the images of each class."""
    x_adv: Tensor | None = None
    """The adversarial examples, if they were kept; the natural image where the attack found none."""
    largest_distance: float | None = None
    """Of a custom attack: the largest distance of an adversarial example from its image, in the attack's norm."""

    @property
    def accuracy(self) -> float:
        """Share of images that are classified correctly."""
        return float(self.correct.double().mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % confidence interval of the accuracy."""
        return wilson(int(self.correct.sum()), len(self.correct))

    def to_dict(self) -> dict[str, Any]:
        """Return accuracy, 95 % interval, number of images, time and setting, as a result card has them."""
        right, n = int(self.correct.sum()), len(self.correct)
        facts = {"accuracy": right / n, "interval95": list(self.interval), "n": n, "seconds": round(self.seconds, 3)}
        facts |= {} if self.largest_distance is None else {"largest_distance": self.largest_distance}
        return {**facts, **self.setting, **({"after": self.after} if len(self.after) > 1 else {})}


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationResult(Mapping[Key, AttackResult]):
    """Natural and robust accuracy of a network: a mapping from attacks to their results.

    The keys are the names of the attacks (`result["pgd-20"]`). Where several ε were given, they are pairs of name and
    ε (`result["pgd-20", 8 / 255]`), natural images being `("natural", 0.0)`. Look-up accepts a pair or a name alone in
    both cases; a name alone raises a `KeyError` if that attack was run at more than one ε.
    """

    attacks: dict[Key, AttackResult]
    """The results, in the order in which they were measured."""
    natural: float
    """Accuracy on natural images, which is measured whether or not `natural` is among the attacks."""
    notices: list[str]
    """Warnings, such as those of AutoAttack's own checks."""
    device: torch.device

    def __getitem__(self, key: Key) -> AttackResult:
        name, eps = (key, None) if isinstance(key, str) else key
        found = [result for result in self.attacks.values() if result.attack == name and eps in (None, result.eps)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(map(repr, self))
        raise KeyError(f"{key!r}: the keys of this result are {known}; `to_dict()` returns it as a JSON card")

    def __iter__(self) -> Iterator[Key]:
        return iter(self.attacks)

    def __len__(self) -> int:
        return len(self.attacks)

    def __repr__(self) -> str:
        """Return a table: a row for each attack, with accuracy, 95 % interval and number of images."""
        width = max((len(result.attack) for result in self.values()), default=6)
        lines = [f"{'attack':{width}}  {'ε':>8}  accuracy  95 % interval      images"]
        for result in self.values():
            eps, (low, high) = show_number(result.eps) if result.setting else "", result.interval
            interval = f"[{low:.2%}, {high:.2%}]"
            lines.append(
                f"{result.attack:{width}}  {eps:>8}  {result.accuracy:>8.2%}  {interval:17}  {len(result.correct):>6}"
            )
        return "\n".join([*lines, *(f"note: {notice}" for notice in self.notices)])

    def to_dict(self, **facts: Any) -> dict[str, Any]:
        """Return the result as a card for JSON: settings, accuracies, intervals, notices and the environment.

        `attacks` maps each name to its entry; to a list of entries, one for each ε, where several ε were given. `facts`
        describe what was measured, and come first.
        """
        entries: dict[str, Any] = {}
        for key, result in self.attacks.items():
            entry = {**result.to_dict(), "per_class": result.per_class}
            if isinstance(key, str) or result.attack == "natural":
                entries[result.attack] = entry
            else:
                entries.setdefault(result.attack, []).append(entry)
        return evaluation_card(entries, self.notices, self.device, **facts)


def pack_verdicts(correct: Tensor) -> str:
    """Return (examples,) of bool as hexadecimal digits, four examples a digit."""
    return np.packbits(correct.numpy()).tobytes().hex()


def unpack_verdicts(text: object, n: int) -> Tensor | None:
    """Return the verdicts on `n` examples that `pack_verdicts` packed; `None` for any other text."""
    try:
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(str(text)), dtype=np.uint8))
    except ValueError:
        return None
    return torch.from_numpy(bits[:n].astype(bool)) if 0 < n <= len(bits) < n + 8 else None


def write_adversaries(path: Path, result: EvaluationResult, y: Tensor) -> None:
    """Write the adversarial examples and the verdicts of every attack, and the labels, as safetensors."""
    tensors = {f"{name}/x_adv": found.x_adv for name, found in result.items() if found.x_adv is not None}
    tensors |= {f"{name}/correct": found.correct for name, found in result.items()}
    write_tensors(path, {**tensors, "y": y})
