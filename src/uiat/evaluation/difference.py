"""The difference of two networks' accuracies on the same images (Figure 5)."""

from math import sqrt

from torch import Tensor


def paired_difference(first: Tensor, second: Tensor, z: float = 1.959963984540054) -> tuple[float, tuple[float, float]]:
    """Return accuracy(first) − accuracy(second) from verdicts on the same examples, and its 95 % interval.

    The examples are the same, so only those on which the networks disagree count (Agresti and Min, 2005: half an
    example is added to each kind of disagreement, which keeps the interval sound where there are few).
    """
    n = len(first)
    gained, lost = int((first & ~second).sum()), int((second & ~first).sum())
    size, more, less = n + 2, gained + 0.5, lost + 0.5
    center = (more - less) / size
    half = z * sqrt(more + less - (more - less) ** 2 / size) / size
    return (gained - lost) / n, (max(-1.0, center - half), min(1.0, center + half))
