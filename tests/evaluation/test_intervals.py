"""Wilson's intervals, against SciPy's."""

import pytest
from scipy.stats import binomtest

from uiat.evaluation.intervals import wilson

CASES = [(0, 1), (1, 1), (0, 10), (10, 10), (3, 7), (50, 100), (999, 1000), (4_321, 10_000), (10_000, 10_000)]


@pytest.mark.parametrize(("correct", "n"), CASES)
def test_scipys(correct: int, n: int) -> None:
    expected = binomtest(correct, n).proportion_ci(confidence_level=0.95, method="wilson")
    assert wilson(correct, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_by_hand() -> None:
    assert wilson(50, 100) == pytest.approx((0.403832, 0.596168), abs=1e-6)
    assert wilson(0, 10)[0] == pytest.approx(0.0, abs=1e-12)
    assert wilson(10, 10)[1] == pytest.approx(1.0, abs=1e-12)
    assert wilson(0, 0) == (0.0, 1.0)
