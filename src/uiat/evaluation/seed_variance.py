"""The variance of accuracies between seeds, estimated over several methods (a moderated variance, Smyth 2004)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from statistics import mean, variance


@dataclass(frozen=True)
class SeedVariance:
    """The variance between seeds of one network's accuracy, without what all networks of a seed have in common."""

    variance: float
    prior_degrees: float
    """Degrees of freedom that it counts for beside a comparison's own; infinite if all methods vary alike."""
    total_degrees: float
    """Degrees of freedom of all methods together: no interval has more."""

    def moderate(self, own: float, degrees: int) -> tuple[float, float]:
        """Combine it with the `own` variance of paired differences, and return a variance with its degrees of freedom.

        A difference has two networks, so twice the variance. The weights are the degrees of freedom.
        """
        total = min(self.prior_degrees + degrees, self.total_degrees)
        if self.prior_degrees == inf:
            return 2 * self.variance, total
        sum_ = self.prior_degrees * 2 * self.variance + degrees * own
        return sum_ / (self.prior_degrees + degrees), total


def estimate_seed_variance(accuracies: Sequence[Mapping[int, float]]) -> SeedVariance | None:
    """Return the variance between seeds, from the accuracies of several methods by seed; `None` if fewer than two vary.

    The mean effect of each seed is removed first: methods share the images and the order of a seed, and comparisons
    are paired. Where the variances of the methods differ by more than chance, the estimate counts for fewer degrees of
    freedom, so that each comparison relies more on its own.
    """
    methods = [own for own in accuracies if len(own) > 1]
    means = [mean(own.values()) for own in methods]
    seeds = {seed for own in methods for seed in own}
    effect = {
        seed: mean(own[seed] - center for own, center in zip(methods, means, strict=True) if seed in own)
        for seed in seeds
    }
    adjusted = len(methods) / (len(methods) - 1) if len(methods) > 1 else 1.0  # the effects were estimated, too
    spread = [adjusted * variance([own[seed] - effect[seed] for seed in own]) for own in methods]
    degrees = [len(own) - 1 for own in methods]
    pooled = sum(d * v for d, v in zip(degrees, spread, strict=True)) / max(1, sum(degrees))
    if len(methods) < 2 or pooled == 0:
        return None
    value, prior = _fit([max(v, 1e-5 * pooled) for v in spread], degrees)
    return SeedVariance(pooled if prior == inf else value, prior, sum(degrees) / adjusted)


def _fit(variances: Sequence[float], degrees: Sequence[int]) -> tuple[float, float]:
    """Fit a scaled F distribution to variances by the mean and the variance of their logarithms (Smyth 2004, 6.2)."""
    from scipy.special import digamma, polygamma  # slow to import, and only claims need it

    logs = [log(v) - digamma(d / 2) + log(d / 2) for v, d in zip(variances, degrees, strict=True)]
    excess = variance(logs) - mean(float(polygamma(1, d / 2)) for d in degrees)
    if excess <= 0:
        return exp(mean(logs)), inf
    half = _inverse_trigamma(excess)
    return exp(mean(logs) + float(digamma(half)) - log(half)), 2 * half


def _inverse_trigamma(value: float) -> float:
    """Return the x > 0 at which the trigamma function has this value, by Newton's method on its reciprocal."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x
