"""Paired intervals over seeds and examples: are two methods different on the same images?"""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from uiat.rng import generator

ROUNDS = 2000
BLOCK = 100
"""Resamplings made at a time: the memory of 100 is little, also for 10,000 examples."""
LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """A mean difference, its 95 % interval, and what it was measured on."""

    value: float
    low: float
    high: float
    seeds: int
    examples: int


def paired(differences: Tensor) -> Difference:
    """Return the mean of (seeds, examples) differences with an interval from resampling both seeds and examples.

    Two examples are added, one for each side, as Agresti and Min (2005) do for McNemar's setting (with the same second
    moment as their two halves): without them, networks that never disagree would have an interval of no width.
    """
    seeds, examples = differences.shape
    values = differences.double()
    extra = torch.tensor([sqrt(0.5), -sqrt(0.5)], dtype=torch.float64).expand(seeds, 2)
    padded = torch.cat([values, extra], dim=1)
    key = generator(0, "bootstrap")
    means = torch.cat([_resampled(padded, key) for _ in range(ROUNDS // BLOCK)])
    tail = (1 - LEVEL) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Difference(float(values.mean()), low, high, seeds, examples)


def _resampled(values: Tensor, key: torch.Generator) -> Tensor:
    """Return the means of some resamplings of (seeds, examples), each with seeds and examples drawn anew."""
    seeds, examples = values.shape
    drawn = torch.randint(examples, (BLOCK, examples), generator=key)
    by_seed = torch.stack([row[drawn].mean(dim=1) for row in values])
    chosen = torch.randint(seeds, (BLOCK, seeds), generator=key)
    return by_seed.gather(0, chosen.T).mean(dim=0)


def paired_times(first: list[float], second: list[float]) -> Difference:
    """Return mean(second − first) over rounds of the same number, and a 95 % interval by resampling rounds."""
    count = min(len(first), len(second))
    values = torch.tensor(second[:count], dtype=torch.float64) - torch.tensor(first[:count], dtype=torch.float64)
    drawn = torch.randint(count, (ROUNDS, count), generator=generator(0, "bootstrap"))
    tail = (1 - LEVEL) / 2
    low, high = torch.quantile(values[drawn].mean(dim=1), torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Difference(float(values.mean()), low, high, 1, count)
