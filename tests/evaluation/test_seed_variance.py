"""The variance between seeds, estimated over several methods: the fit, the edges, and the coverage of intervals."""

from math import inf, sqrt

import pytest
import torch
from scipy.special import polygamma
from torch import Tensor

from uiat.evaluation.intervals import paired
from uiat.evaluation.seed_variance import SeedVariance, _inverse_trigamma, estimate_seed_variance


def by_seed(accuracies: Tensor) -> list[dict[int, float]]:
    return [dict(enumerate(row)) for row in accuracies.tolist()]


@pytest.mark.parametrize("value", [0.01, 0.3, 1.6449, 5.0, 400.0])
def test_the_inverse_of_the_trigamma_function(value: float) -> None:
    assert float(polygamma(1, _inverse_trigamma(value))) == pytest.approx(value)


def test_equal_variances_are_pooled_without_the_effect_of_each_seed() -> None:
    key = torch.Generator().manual_seed(0)
    noise, seeds = torch.randn(400, 3, generator=key), 50 * torch.randn(3, generator=key)
    found = estimate_seed_variance(by_seed(noise.double() + seeds))
    assert found is not None
    assert found.variance == pytest.approx(1.0, rel=0.1)
    assert found.prior_degrees > 40
    assert found.total_degrees == pytest.approx(800, rel=0.01)


def test_unequal_variances_count_for_fewer_degrees_of_freedom() -> None:
    """Standard deviations of 0.3 and 3: the variance of each method says more than that of all."""
    key = torch.Generator().manual_seed(1)
    scale = torch.tensor([0.3, 3.0]).repeat(100)[:, None]
    found = estimate_seed_variance(by_seed((scale * torch.randn(200, 5, generator=key)).double()))
    assert found is not None
    assert found.prior_degrees < 3


def test_two_methods_alone_have_the_interval_of_their_difference() -> None:
    """Without a third method there is only the paired difference: Student's t, bit by bit."""
    values = torch.rand(2, 3, 200, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    common = estimate_seed_variance(by_seed(values.mean(dim=2)))
    alone, found = paired(values[0] - values[1]), paired(values[0] - values[1], common=common)
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high), rel=1e-9)


def test_few_or_equal_accuracies_give_no_estimate() -> None:
    assert estimate_seed_variance([]) is None
    assert estimate_seed_variance([{0: 0.5, 1: 0.6}]) is None, "one method"
    assert estimate_seed_variance([{0: 0.5}, {0: 0.6}, {0: 0.7}]) is None, "one seed each"
    assert estimate_seed_variance([{0: 0.5, 1: 0.5}, {0: 0.6, 1: 0.6}]) is None, "no variance"


def test_methods_may_have_different_seeds() -> None:
    found = estimate_seed_variance([{0: 0.5, 1: 0.52, 2: 0.51}, {1: 0.4, 2: 0.41}, {0: 0.3, 4: 0.33}, {3: 0.9}])
    assert found is not None
    assert found.total_degrees == pytest.approx(4 * 2 / 3)


def test_a_comparison_counts_in_proportion_to_its_degrees_of_freedom() -> None:
    common = SeedVariance(variance=2.0, prior_degrees=6.0, total_degrees=30.0)
    assert common.moderate(own=10.0, degrees=2) == pytest.approx(((6 * 4 + 2 * 10) / 8, 8.0))
    assert SeedVariance(2.0, inf, 30.0).moderate(10.0, 2) == (4.0, 30.0)


def networks(key: torch.Generator, methods: int, seeds: int, spread: Tensor, n: int = 400) -> Tensor:
    """Return verdicts (methods, seeds, n) of equal methods: images and seeds have effects that all methods share."""
    images, shared = torch.randn(n, generator=key), 0.03 * torch.randn(seeds, generator=key)
    skill = spread[:, None] * torch.randn(methods, seeds, generator=key) + shared
    return (images + skill[..., None] + torch.randn(methods, seeds, n, generator=key) > 0).double()


@pytest.mark.parametrize(("seeds", "spread"), [(2, 0.05), (3, 0.0), (3, 0.2), (5, 0.05)])
def test_intervals_cover_the_truth_in_95_of_100(seeds: int, spread: float) -> None:
    """Ten equal methods: 95 % ± 4 standard errors of 400 intervals, and not much less where seeds agree by chance.

    Student's t on three seeds alone covers 0 in about 80 of 100 of the fifth whose seeds agree best.
    """
    key, trials, found = torch.Generator().manual_seed(seeds), 400, []
    for _ in range(trials):
        verdicts = networks(key, 10, seeds, torch.full((10,), spread))
        common = estimate_seed_variance(by_seed(verdicts.mean(dim=2)))
        difference = verdicts[0] - verdicts[1]
        interval = paired(difference, common=common)
        found.append((float(difference.mean(dim=1).var()), interval.low <= 0 <= interval.high))
    covered = sum(hit for _, hit in found) / trials
    assert abs(covered - 0.95) <= 4 * sqrt(0.95 * 0.05 / trials), covered
    calm = [hit for _, hit in sorted(found)[: trials // 5]]
    assert sum(calm) / len(calm) >= 0.85


def test_methods_that_vary_unlike_are_covered_nearly_as_often() -> None:
    """Standard deviations that differ by a factor of e, up or down: at least 90 of 100."""
    key, trials, covered = torch.Generator().manual_seed(0), 400, 0
    for _ in range(trials):
        verdicts = networks(key, 10, 3, 0.05 * torch.exp(torch.randn(10, generator=key)))
        common = estimate_seed_variance(by_seed(verdicts.mean(dim=2)))
        interval = paired(verdicts[0] - verdicts[1], common=common)
        covered += interval.low <= 0 <= interval.high
    assert covered / trials >= 0.90
