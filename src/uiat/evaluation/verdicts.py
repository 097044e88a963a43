"""Verdicts on single images: packed for the card of a run, and compared between two runs on the same images."""

from collections.abc import Callable
from dataclasses import dataclass
from math import copysign, inf, sqrt
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor


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


@dataclass(frozen=True)
class Paired:
    """Paired difference of two runs on the same images. The 95 % interval excludes 0 exactly if p is below 0.05."""

    difference: float
    """Accuracy of the first minus accuracy of the second."""
    low: float
    high: float
    """The ends of Tango's score interval (1998), which inverts McNemar's test."""
    p: float
    """p-value of McNemar's test: the probability of a difference this large if neither run were better."""


def compare_verdicts(first: Tensor, second: Tensor) -> Paired:
    """Compare verdicts on the same images."""
    n, gained, lost = len(first), int((first & ~second).sum()), int((second & ~first).sum())
    difference = (gained - lost) / n
    p = 2 * NormalDist().cdf(-abs(_score(0.0, n, gained, lost)))
    z = NormalDist().inv_cdf(0.975)
    low = crossing(lambda at: _score(at, n, gained, lost) - z, -1.0, difference)
    high = crossing(lambda at: _score(at, n, gained, lost) + z, difference, 1.0)
    return Paired(difference, low, high, p)


def _score(difference: float, n: int, gained: int, lost: int) -> float:
    """Return the score statistic of a true difference; it falls as the difference grows, and is McNemar's z at 0."""
    b = (2 * n - gained + lost) * difference - gained - lost
    c = -lost * difference * (1 - difference)
    share = (sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)  # of images that only the second gets right
    variance = n * (2 * share + difference * (1 - difference))
    distance = gained - lost - n * difference
    return distance / sqrt(variance) if variance > 0 else copysign(inf, distance) if distance else 0.0


def crossing(falling: Callable[[float], float], low: float, high: float) -> float:
    """Return where a falling function crosses 0, by bisection."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2
