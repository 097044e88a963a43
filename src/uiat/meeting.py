"""How the processes of a run find each other, also after some of them have died and been started again.

torchrun keeps one store of keys and values for all its attempts, and what a dead process wrote stays in it. A process
that comes back early would read the address of a peer that is no more: it fails to connect, or waits for ever. So the
processes first agree on a name that is new, and put everything else under it.
"""

import secrets
import time

from torch.distributed.distributed_c10d import PrefixStore, Store

from uiat.errors import UserError

POLL_SECONDS = 0.02


def meet(store: Store, rank: int, world: int, seconds: float = 300.0) -> Store:
    """Return the part of the store that the processes of this attempt share, and no earlier one has written to.

    Each process leaves a random word. Rank 0 shows its own with all that it has found; a process that sees its own word
    there knows that this rank 0 is alive, and repeats rank 0's word; when all have, they have met.
    """
    deadline = time.monotonic() + seconds
    mine = secrets.token_hex(8)
    if rank == 0:
        others = range(1, world)
        while not all(_read(store, f"uiat/repeat/{other}") == mine for other in others):
            found = [_read(store, f"uiat/word/{other}") for other in others]
            store.set("uiat/shown", " ".join([mine, *found]))
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
        raise UserError(f"waited for {who} in vain: see what the other processes say, then start again.")
    time.sleep(POLL_SECONDS)
