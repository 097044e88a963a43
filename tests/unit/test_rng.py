"""Draws depend only on their key, and a share of a batch gets its rows of the global draw."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from uiat.rng import Draws, derive


@given(total=st.integers(1, 12), start=st.integers(0, 11), n=st.integers(1, 12), step=st.integers(0, 5))
def test_a_share_is_a_slice_of_the_whole(total: int, start: int, n: int, step: int) -> None:
    start, n = min(start, total - 1), min(n, total - min(start, total - 1))
    whole, share = Draws(3, 2, step), Draws(3, 2, step, start, total)
    like = torch.empty(total, 2, 3)
    assert torch.equal(whole.normal("a", like)[start : start + n], share.normal("a", like[:n]))
    assert torch.equal(whole.uniform("a", like)[start : start + n], share.uniform("a", like[:n]))


def test_keys_are_independent_of_each_other() -> None:
    keys = [
        (0, "a", 0, 0),
        (1, "a", 0, 0),
        (0, "b", 0, 0),
        (0, "a", 1, 0),
        (0, "a", 0, 1),
        (0, "a", 1, 1),
        (11, "a", 1, 1),
    ]
    assert len({derive(*key) for key in keys}) == len(keys)
    assert all(0 <= derive(*key) < 2**63 for key in keys)


def test_the_global_generator_is_not_used() -> None:
    state = torch.get_rng_state()
    Draws().normal("a", torch.empty(3))
    Draws().uniform("a", torch.empty(3))
    assert torch.equal(torch.get_rng_state(), state)


def test_uniform_lies_in_its_range() -> None:
    draw = Draws(1).uniform("a", torch.empty(10_000))
    assert draw.min() >= -1
    assert draw.max() <= 1
    assert abs(float(draw.mean())) < 0.05
    assert abs(float(draw.var()) - 1 / 3) < 0.02
