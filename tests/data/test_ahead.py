"""One item ahead: the same items, in the same order, and nothing left running."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uiat.data.ahead import ahead


@given(st.lists(st.integers()))
def test_it_yields_the_same(items: list[int]) -> None:
    assert list(ahead(iter(items))) == items


def test_it_asks_for_the_next_before_it_is_wanted() -> None:
    made: list[int] = []
    second = threading.Event()

    def source() -> Iterator[int]:
        for k in range(3):
            made.append(k)
            if k == 1:
                second.set()
            yield k

    found = ahead(source())
    assert next(found) == 0
    assert second.wait(5)
    assert made[:2] == [0, 1]
    assert list(found) == [1, 2]


def test_a_mistake_of_the_source_is_raised_at_its_place() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    found = ahead(source())
    assert next(found) == 1
    with pytest.raises(ValueError, match="broken"):
        next(found)


def test_an_end_in_the_middle_leaves_no_thread() -> None:
    found = ahead(iter(range(100)))
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("next batch")]
