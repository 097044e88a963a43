"""Exclusive file locks between processes; the system releases them when their process ends, however it ends.

All of them are `flock` locks, so that every part of the package sees the locks of every other one.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags that refuse links, and open a FIFO without blocking."""
_PAUSES = (0.02, 0.05, 0.1)
"""Seconds between attempts to lock."""


class LockUnsupported(OSError):
    """The file system cannot lock files."""


def open_locked(path: Path, *, wait: bool = False) -> int:
    """Open a file, lock it, and return its descriptor; closing the descriptor releases the lock.

    A missing file is created, an existing one keeps its content, and a symbolic link is refused. `BlockingIOError` is
    raised if the file is locked already, unless `wait`, and `LockUnsupported` if the file system has no locks.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | _FLAGS | os.O_CREAT, 0o666)
        try:
            _lock_patiently(descriptor, wait)
            if is_same_file(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # removed or replaced before it was locked: a lock on it would exclude no other process


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock an existing file or folder; `BlockingIOError` is raised if it is locked already, unless `wait`."""
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        lock(descriptor, wait=wait)
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, wait: bool) -> None:
    """Lock an open file or folder; `BlockingIOError` is raised if it is locked already, unless `wait`."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file; `False` also where there is no such file, or it cannot be locked."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that two readers never see each other
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def is_same_file(descriptor: int, path: Path) -> bool:
    """Whether a path still names an open file, rather than nothing, a link or another file."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    return False


def _lock_patiently(descriptor: int, wait: bool) -> None:
    """Lock an open file, with a few attempts: `is_locked`, in another process, holds a lock for an instant."""
    try:
        for pause in _PAUSES:
            with suppress(BlockingIOError):
                return lock(descriptor, wait=wait)
            time.sleep(pause)
        lock(descriptor, wait=wait)
    except BlockingIOError:
        raise
    except OSError as error:
        raise LockUnsupported(error.errno, error.strerror) from None
