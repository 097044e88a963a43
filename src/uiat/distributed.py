"""Collectives for multi-process training; no-ops on a single process.

A run is one program on `world()` processes started by torchrun. They keep the same weights, z and table of p at all
times: everything in which they would differ is exchanged here.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous as torch_rendezvous

from uiat.errors import PeerLost, UserError

ValueT = TypeVar("ValueT")

POLL_SECONDS = 0.02


def rendezvous(store: Store, rank: int, world: int, seconds: float = 300.0) -> Store:
    """Return a store for the processes of this attempt, which no earlier attempt has written to.

    Each process writes a random token. Rank 0 publishes its token, followed by those that it has read. A process that
    finds its token in that list knows that this rank 0 is alive, and answers with the token of rank 0. The rendezvous
    is complete when all have answered.
    """
    deadline = time.monotonic() + seconds
    mine = secrets.token_hex(8)
    if rank == 0:
        others = range(1, world)
        while not all(_read(store, f"uiat/repeat/{other}") == mine for other in others):
            tokens = [_read(store, f"uiat/word/{other}") for other in others]
            store.set("uiat/shown", " ".join([mine, *tokens]))
            _pause(deadline, f"{world} processes")
        name = mine
    else:
        store.set(f"uiat/word/{rank}", mine)
        while mine not in (shown := _read(store, "uiat/shown").split())[1:]:
            _pause(deadline, "rank 0")
        name = shown[0]
        store.set(f"uiat/repeat/{rank}", name)
    return PrefixStore(f"uiat/{name}", store)


def _read(store: Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def _pause(deadline: float, who: str) -> None:
    if time.monotonic() > deadline:
        raise UserError(f"timed out waiting for {who}: see the output of the other processes, then start again.")
    time.sleep(POLL_SECONDS)


def world() -> int:
    """Return the number of processes of the run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process."""
    return dist.get_rank() if world() > 1 else 0


def is_main() -> bool:
    """Whether this is the process that writes files and prints."""
    return rank() == 0


def launched() -> int:
    """Return the number of processes that torchrun started; 1 without it."""
    count = os.environ.get("WORLD_SIZE", "1")
    if count == "1":
        return 1
    names = {name: os.environ.get(name) for name in ("WORLD_SIZE", "RANK", "MASTER_PORT")}
    wrong = [name for name, value in names.items() if not (value or "").isdecimal()]
    wrong += ["MASTER_ADDR"] * ("MASTER_ADDR" not in os.environ)
    if wrong or int(count) < 1:
        name = next(iter(wrong), "WORLD_SIZE")
        raise UserError(
            f"the environment has WORLD_SIZE={count}, and {name} is {os.environ.get(name) or 'not set'}: start several "
            "processes with --processes or torchrun, or unset WORLD_SIZE."
        )
    return int(count)


def restarted() -> bool:
    """Whether torchrun restarted this process after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def pick_device(name: str) -> torch.device:
    """Return the device of this name; `auto` is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # a meta tensor has no values
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UserError(f"the device {name!r} cannot be used here: give --device cpu, or omit it.") from None
    return device


def local_device(device: torch.device) -> torch.device:
    """Return the GPU of this process if several processes were started."""
    if device.type != "cuda" or launched() == 1:
        return device
    here, local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    if device.index is not None and here > 1:
        raise UserError(f"--device {device} is one GPU for {here} processes: give --device cuda to use one for each.")
    if device.index is None and here > (gpus := torch.cuda.device_count()):
        raise UserError(f"{here} processes on a machine with {gpus} GPU(s): start one for each GPU, or --device cpu.")
    return device if device.index is not None else torch.device("cuda", local)


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Initialise the process group if torchrun started several processes: gloo on CPUs, NCCL on GPUs."""
    if launched() == 1 or dist.is_initialized():
        yield
        return
    gpu = device if device.type == "cuda" else None
    if gpu is not None:
        torch.cuda.set_device(gpu)  # the meaning of "cuda" from now on; else all would use the first GPU
    backend = "gloo" if gpu is None else "nccl"
    timeout = timedelta(minutes=30)
    # Otherwise imported by DistributedDataParallel while there is a group, which default arguments would then keep.
    import_module("torch.distributed.nn")
    try:
        store, number, count = next(torch_rendezvous("env://", timeout=timeout))
        met = rendezvous(store, number, count)
        dist.init_process_group(backend, store=met, rank=number, world_size=count, timeout=timeout, device_id=gpu)
        try:
            yield
        finally:
            dist.destroy_process_group()
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error).lower():  # gloo raises only a RuntimeError
            raise PeerLost(
                f"process {os.environ.get('RANK', '?')} lost the connection to another process of this run, which has "
                "died or was stopped: the last checkpoint is complete, and the run resumes from it when torchrun "
                "restarts the processes, or with --resume."
            ) from error
        raise


def all_reduce_sum(value: Tensor) -> Tensor:
    """Return the sum over all processes."""
    if world() == 1:
        return value
    summed = value.to(_exchange_device(), copy=True)
    dist.all_reduce(summed)
    return summed.to(value.device)


def _exchange_device() -> torch.device:
    """Return the device for collectives: with NCCL, the GPU of this process."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def any_rank(*flags: bool) -> list[bool]:
    """Return, for each flag, whether it is set in any process."""
    if world() == 1:
        return list(flags)
    raised = torch.tensor(flags, dtype=torch.int32, device=_exchange_device())
    dist.all_reduce(raised, op=dist.ReduceOp.MAX)
    return [bool(flag) for flag in raised.tolist()]


def gather(rows: Tensor) -> Tensor:
    """Return the rows of all processes, in the order of their ranks; processes may have different numbers of rows."""
    if world() == 1:
        return rows
    device = _exchange_device()
    counts = [torch.zeros((), dtype=torch.int64, device=device) for _ in range(world())]
    dist.all_gather(counts, torch.tensor(len(rows), device=device))
    sizes = [int(count) for count in counts]
    padded = rows.new_zeros((max(sizes), *rows.shape[1:]), device=device)
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]).to(rows.device)


def average(tensors: list[Tensor]) -> None:
    """Replace floating-point tensors by their means over all processes, in one all-reduce."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    if world() == 1 or not floats:
        return
    flat = torch.cat([tensor.detach().flatten() for tensor in floats])
    dist.all_reduce(flat)
    flat /= world()
    for tensor, mean in zip(floats, flat.split([tensor.numel() for tensor in floats]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def broadcast(value: ValueT) -> ValueT:
    """Return the `value` of the main process in every process."""
    if world() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def wait() -> None:
    """Wait until all processes have called this."""
    if world() > 1:
        dist.barrier()
