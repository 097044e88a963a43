"""Verdicts on single images: kept in a run's card, and compared between two runs of the same images."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uiat.evaluation.intervals import paired


def pack(correct: Tensor) -> str:
    """Return (examples,) of bool as hexadecimal digits, four examples a digit."""
    return np.packbits(correct.numpy()).tobytes().hex()


def unpack(text: object, n: int) -> Tensor | None:
    """Return the verdicts on `n` examples that `pack` was given; `None` for anything else."""
    try:
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(str(text)), dtype=np.uint8))
    except ValueError:
        return None
    return torch.from_numpy(bits[:n].astype(bool)) if 0 < n <= len(bits) < n + 8 else None


@dataclass(frozen=True)
class Paired:
    """How two runs differ on the same images."""

    difference: float
    """Accuracy of the first minus accuracy of the second."""
    low: float
    high: float
    p: float
    """McNemar's exact test: the probability of a disagreement this one-sided if neither run were better."""


def compare_verdicts(first: Tensor, second: Tensor) -> Paired:
    """Compare verdicts on the same images, with a 95 % interval."""
    from scipy.stats import binomtest

    difference = paired((first.double() - second.double())[None])
    gained, lost = int((first & ~second).sum()), int((second & ~first).sum())
    p = float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return Paired(difference.value, difference.low, difference.high, p)
