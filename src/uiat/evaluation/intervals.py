"""Confidence intervals of an accuracy, of a paired difference of accuracies, and of a difference of times.

`uiat evaluate`, `uiat curves`, and the figures and claims of `uiat reproduce` use them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import copysign, exp, hypot, inf, log, sqrt
from statistics import NormalDist, mean, median, stdev
from typing import Literal

from torch import Tensor

from uiat.evaluation.seed_variance import SeedVariance

LEVEL = 0.95
TRIMMED = 0.2
"""Share of the repetitions of a benchmark that is trimmed on either side."""
Interval = Callable[[float], tuple[float, float]]
"""Confidence level → low and high."""


def wilson(correct: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval for a proportion; sound also near 0 and 1, where accuracies often are."""
    if n == 0:
        return 0.0, 1.0
    p, z = correct / n, 1.959963984540054
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)


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


@dataclass(frozen=True)
class Difference:
    """A difference, its confidence interval at any level, and the size of its sample."""

    value: float
    interval: Interval = field(repr=False, compare=False)
    seeds: int
    examples: int
    """Images; or repetitions."""
    over: Literal["seeds and images", "rounds"] = "seeds and images"

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval."""
        return self.interval(LEVEL)[0]

    @property
    def high(self) -> float:
        """The upper end of the 95 % interval."""
        return self.interval(LEVEL)[1]

    @property
    def one_seed(self) -> bool:
        """Whether there is one network a side: the interval omits the variance between networks of one method."""
        return self.over == "seeds and images" and self.seeds == 1


def paired(differences: Tensor, bound: float = 1.0, common: SeedVariance | None = None) -> Difference:
    """Return the mean of (seeds, examples) differences; `bound` is the largest absolute value of the mean.

    Seeds and images are crossed random effects. The interval combines two parts in quadrature: over seeds, Student's t
    times the standard error of the seeds' means, which already contains the chance of every single verdict; and over
    images, the normal quantile times the standard error of what images share in all seeds. The
    unmodified variance of the images' means would count the chance of single verdicts twice. With one seed, only the
    images' part remains. `common` is what is known of the variance between seeds from other methods: few seeds alone
    estimate it badly.

    Two examples are added, one for each side, as Agresti and Min (2005) do for McNemar's setting (with the same second
    moment as their two halves): without them, networks that never disagree would have an interval of no width.
    """
    seeds, examples = differences.shape
    values, size = differences.double(), max(1.0, bound)
    value, by_seed, by_image = float(values.mean()), values.mean(dim=1), values.mean(dim=0)
    center, spread, chance, degrees = value * examples / (examples + 2), 0.0, 0.0, seeds - 1.0
    squares = float(by_image.square().sum()) + size**2 - (examples + 2) * center**2
    if seeds > 1:
        variance = float(by_seed.var())
        if common is not None:
            variance, degrees = common.moderate(variance, seeds - 1)
        spread = sqrt(variance / seeds)
        residuals = values - by_seed[:, None] - by_image + value
        chance = float(residuals.square().sum()) / (seeds * (seeds - 1))
    error = sqrt(max(squares - chance, size**2)) / (examples + 2)

    def interval(level: float) -> tuple[float, float]:
        half, over_seeds = _normal(level) * error, _student(level, degrees) * spread if seeds > 1 else 0.0
        below, above = (max(0.0, half + sign * (value - center)) for sign in (1, -1))
        return max(-bound, value - hypot(below, over_seeds)), min(bound, value + hypot(above, over_seeds))

    return Difference(value, interval, seeds, examples)


def smallest_difference(differences: Sequence[Difference]) -> Difference:
    """Return the smallest of some differences, with an interval that allows for the choice of the smallest.

    The smallest is above a number if all are, which needs no correction; it is below one if any of k is, which
    needs Bonferroni's: the upper end is the least upper end at the level 1 − (1 − level) / k.
    """
    smallest = min(differences, key=lambda difference: difference.value)

    def interval(level: float) -> tuple[float, float]:
        corrected = 1 - (1 - level) / len(differences)
        low = min(difference.interval(level)[0] for difference in differences)
        return low, min(difference.interval(corrected)[1] for difference in differences)

    return Difference(smallest.value, interval, smallest.seeds, smallest.examples, smallest.over)


def paired_times(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return how many seconds more `second` takes than `first`, from two or more repetitions in which both were timed.

    The mean is of log(second / first) in each repetition: a slow one is slow for both. Other work on the machine may
    interrupt a step, so a fifth of the repetitions is trimmed on either side, and the interval is Yuen's (1974):
    Student's t with winsorized deviations. Value and interval are converted to seconds at the median of `first`.
    """
    ratios = sorted(log(b / a) for a, b in zip(first, second, strict=False))
    n, unit = len(ratios), median(first[: len(ratios)])
    cut = int(TRIMMED * n)
    kept = ratios[cut : n - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    center, error = mean(kept), stdev(winsorized) / ((1 - 2 * cut / n) * sqrt(n))

    def interval(level: float) -> tuple[float, float]:
        half = _student(level, len(kept) - 1) * error
        return _seconds(center - half, unit), _seconds(center + half, unit)

    return Difference(_seconds(center, unit), interval, 1, n, "rounds")


def _seconds(log_ratio: float, unit: float) -> float:
    """Convert the logarithm of a ratio to seconds; too large a value is clamped, to fit a float."""
    return (exp(min(log_ratio, 600.0)) - 1) * unit


def _normal(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _student(level: float, degrees: float) -> float:
    from scipy.special import stdtrit  # slow to import, and only claims need it

    return float(stdtrit(degrees, (1 + level) / 2))
