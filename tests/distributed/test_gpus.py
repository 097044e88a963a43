"""Each process uses its own GPU and passes it to torch; torch.cuda is mocked, since there is no GPU here."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from uiat import distributed
from uiat.distributed import all_reduce_sum, local_device, process_group
from uiat.errors import UserError

CUDA = torch.device("cuda")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The last of four processes, two on each of two machines with two GPUs."""
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}
    for name, value in {"WORLD_SIZE": 4, "RANK": 3, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, **places}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    return monkeypatch


def test_the_gpu_of_the_local_rank(started: pytest.MonkeyPatch) -> None:
    assert local_device(CUDA) == torch.device("cuda", 1)
    assert local_device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(UserError, match="--device cuda:0 is one GPU for 2 processes: give --device cuda"):
        local_device(torch.device("cuda", 0))
    started.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(UserError, match=r"3 processes on a machine with 2 GPU\(s\)"):
        local_device(CUDA)
    started.setenv("LOCAL_WORLD_SIZE", "1")  # one on each of four machines may name its GPU
    assert local_device(torch.device("cuda", 1)) == torch.device("cuda", 1)


def test_one_process_takes_what_it_is_given() -> None:
    for name in ("cuda", "cuda:1", "cpu"):
        assert local_device(torch.device(name)) == torch.device(name)


@pytest.mark.parametrize(("device", "backend"), [(torch.device("cuda", 1), "nccl"), (torch.device("cpu"), "gloo")])
def test_torch_is_told_the_gpu_before_the_rendezvous(
    device: torch.device, backend: str, started: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    started.setattr(torch.cuda, "set_device", lambda own: calls.append(("set", own)))
    started.setattr(distributed, "torch_rendezvous", lambda *_, **__: iter([("store", 3, 4)]))
    started.setattr(distributed, "rendezvous", lambda store, rank, world: store)
    started.setattr(dist, "init_process_group", lambda kind, **how: calls.append((kind, how["device_id"], how["rank"])))
    started.setattr(dist, "destroy_process_group", lambda: calls.append("end"))
    with process_group(device):
        pass
    if backend == "nccl":
        assert calls == [("set", device), ("nccl", device, 3), "end"]
    else:
        assert calls == [("gloo", None, 3), "end"]


def test_exchanges_happen_on_the_gpu_of_the_process(started: pytest.MonkeyPatch) -> None:
    started.setattr(dist, "get_backend", lambda: "nccl")
    started.setattr(torch.cuda, "current_device", lambda: 1)
    assert distributed._exchange_device() == torch.device("cuda", 1)
    started.setattr(dist, "get_backend", lambda: "gloo")
    assert distributed._exchange_device() == torch.device("cpu")
    assert all_reduce_sum(torch.ones(2)).tolist() == [1, 1]  # no other process exists
