"""Confidence intervals for accuracies."""

from math import sqrt


def wilson(correct: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Return Wilson's 95 % score interval for a proportion; sound also near 0 and 1, where accuracies often are."""
    if n == 0:
        return 0.0, 1.0
    p = correct / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)
