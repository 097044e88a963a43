"""Rendezvous of processes in a store that contains keys of dead processes."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import DistError, HashStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store

from tests.support.processes import free_port
from uiat.distributed import rendezvous
from uiat.errors import UserError


def gathering(store: Store, world: int, delays: list[float]) -> list[Store]:
    def arrive(rank: int) -> Store:
        time.sleep(delays[rank])
        return rendezvous(store, rank, world, seconds=1800)

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(arrive, range(world)))


@given(st.lists(st.lists(st.sampled_from([0.0, 0.01, 0.05]), min_size=3, max_size=3), min_size=1, max_size=3))
@settings(max_examples=10)
def test_each_attempt_has_a_separate_prefix(attempts: list[list[float]]) -> None:
    store = HashStore()
    for number, delays in enumerate(attempts):
        places = gathering(store, 3, delays)
        assert not places[0].check(["address"]), "what an earlier attempt wrote is out of sight"
        places[0].set("address", str(number))
        assert [place.get("address") for place in places] == [str(number).encode()] * 3


def test_an_attempt_that_broke_off_half_way_does_no_harm() -> None:
    store = HashStore()
    with pytest.raises(UserError, match="rank 0"):
        rendezvous(store, 1, 2, seconds=0.1)
    with pytest.raises(UserError, match="2 processes"):
        rendezvous(store, 0, 2, seconds=0.1)
    places = gathering(store, 2, [0.1, 0.0])
    places[1].set("address", "here")
    assert places[0].get("address") == b"here"


HOST = "import sys, time; from torch.distributed import TCPStore; "
HOST += "s = TCPStore('127.0.0.1', int(sys.argv[1]), is_master=True, wait_for_workers=False); print(flush=True); "
HOST += "time.sleep(600)"


def test_a_process_gives_up_at_once_when_the_one_that_holds_the_store_has_died() -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", HOST, str(port)], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        host.stdout.readline()
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(minutes=5))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(rendezvous, store, 1, 2, seconds=1800)
            time.sleep(0.2)
            host.kill()
            with pytest.raises(DistError):  # which `process_group` turns into the message about a lost process
                waiting.result(timeout=120)
