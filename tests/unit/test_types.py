"""Splitting batches, and conversion of fractions into epochs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uiat.errors import UserError, unknown
from uiat.types import Batch, Clock


@given(n=st.integers(1, 40), size=st.one_of(st.none(), st.integers(1, 45)), indexed=st.booleans())
def test_split_covers_the_batch_in_nearly_equal_parts(n: int, size: int | None, indexed: bool) -> None:
    index = torch.arange(100, 100 + n) if indexed else None
    whole = Batch(torch.rand(n, 2), torch.arange(n), index)
    parts = whole.split(size)
    assert torch.equal(torch.cat([part.y for part in parts]), whole.y)
    assert torch.equal(torch.cat([part.x for part in parts]), whole.x)
    assert max(map(len, parts)) <= (size or n)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for part in parts:
        assert torch.equal(part.y, whole.y[part.start : part.start + len(part)])
        assert part.total in (None, n) if len(parts) == 1 else part.total == n
        assert (part.index is None) == (index is None)


def test_a_part_of_a_part_knows_its_place_in_the_whole() -> None:
    rank = Batch(torch.rand(6, 1), torch.arange(6), None, start=6, total=12)
    assert [(part.start, part.total) for part in rank.split(3)] == [(6, 12), (9, 12)]


@pytest.mark.parametrize(
    ("when", "epochs", "expected"),
    [
        (0.75, 100, 75),
        (0.8, 100, 80),
        (0.29, 100, 29),
        (0.57, 100, 57),
        (75, 100, 75),
        (0.75, 30, 22),
        (0.8, 4, 3),
        (0.75, 1, 1),
        (0.1, 5, 1),
        (1.0, 100, 1),
        (350, 400, 350),
        (0.999, 10, 9),
    ],
)
def test_moments(when: float, epochs: int, expected: int) -> None:
    assert Clock(1, 0, epochs).epoch_at(when) == expected


def test_unknown_names_get_the_closest() -> None:
    assert "did you mean 'uiat'?" in str(unknown("method", "uait", ["uiat", "sat", "trades"]))
    assert "did you mean 'TRADES'?" in str(unknown("method", "tradse", ["TRADES"]))
    assert "known are a, b." in str(unknown("thing", "zzz", ["b", "a"]))
    assert isinstance(unknown("x", "y", []), UserError)
