"""Processes that meet in a store where the dead have left their words."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store

from uiat.distributed import meet
from uiat.errors import UserError


def gathering(store: Store, world: int, delays: list[float]) -> list[Store]:
    def arrive(rank: int) -> Store:
        time.sleep(delays[rank])
        return meet(store, rank, world, seconds=1800)

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(arrive, range(world)))


@given(st.lists(st.lists(st.sampled_from([0.0, 0.01, 0.05]), min_size=3, max_size=3), min_size=1, max_size=3))
@settings(max_examples=10)
def test_each_attempt_meets_in_a_place_of_its_own(attempts: list[list[float]]) -> None:
    store = HashStore()
    for number, delays in enumerate(attempts):
        places = gathering(store, 3, delays)
        assert not places[0].check(["address"]), "what an earlier attempt wrote is out of sight"
        places[0].set("address", str(number))
        assert [place.get("address") for place in places] == [str(number).encode()] * 3


def test_an_attempt_that_broke_off_half_way_does_no_harm() -> None:
    store = HashStore()
    with pytest.raises(UserError, match="rank 0"):
        meet(store, 1, 2, seconds=0.1)
    with pytest.raises(UserError, match="2 processes"):
        meet(store, 0, 2, seconds=0.1)
    places = gathering(store, 2, [0.1, 0.0])
    places[1].set("address", "here")
    assert places[0].get("address") == b"here"
