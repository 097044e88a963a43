"""Atomic writes, digests that detect damaged files, and output to streams."""

import errno
import hashlib
import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from uiat.errors import UserError
from uiat.locks import lock, locked

_MARK = b"uiat sha256 "
_SEAL = len(_MARK) + 64
_END = b"PK\x05\x06"
"""The signature of a zip archive's last record, which has 22 bytes and is followed by the comment."""


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_readable(path: Path, rights: int) -> None:
    """Set the permissions of a private file or folder to `rights` (0o666 or 0o777) without those in the umask."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(rights & ~umask)


class WriteError(UserError, OSError):
    """A file could not be written: a full disk, an exceeded quota, a broken device."""

    def __init__(self, path: Path, error: BaseException):
        self.path, self.reason = path, reason(error)
        super().__init__(f"cannot write {path}: {self.reason}; an existing file is unchanged.")


def reason(error: BaseException) -> str:
    """Return why a write failed, as the operating system describes it."""
    text = error.reason if isinstance(error, WriteError) else (getattr(error, "strerror", None) or str(error))
    return re.sub(r"^.*I/O error: | \(os error \d+\)$", "", text)  # which safetensors adds


@contextmanager
def atomic(path: Path, *, exclusive: bool = False, previous: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path to write; it replaces `path` when it is complete and on the disk.

    Each call uses a different temporary file, so that concurrent writers of one `path` never mix; the last one wins.
    If the file cannot be written, or `path` is a device, a FIFO or a socket, a `WriteError` is raised and `path` is
    unchanged.

    Args:
        path: the file to write.
        exclusive: raise `FileExistsError` if `path` exists.
        previous: rename an existing `path` to this one first.
    """
    handle, temporary = -1, None
    try:
        if os.path.lexists(path) and not (os.path.isfile(path) or os.path.isdir(path) or os.path.islink(path)):
            raise OSError(errno.EINVAL, "it is a device, a FIFO or a socket")  # a rename would put a file in its place
        handle, temporary = _new_temporary(path)
        yield temporary
        sync(temporary)
        _place(temporary, path, exclusive=exclusive, previous=previous)
        sync(path.parent)
    except FileExistsError:
        raise
    except (OSError, SafetensorError) as error:
        raise WriteError(path, error) from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            os.close(handle)
            remove_abandoned(path)


def _new_temporary(path: Path) -> tuple[int, Path]:
    """Create a temporary file under a new name, locked until it is closed; return (descriptor, path)."""
    while True:
        handle, name = mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with suppress(OSError):  # without file locks, abandoned files are never removed
            lock(handle, wait=True)
        if os.path.exists(name):
            return handle, Path(name)
        os.close(handle)  # another process removed it as abandoned before it was locked


def remove_abandoned(path: Path) -> None:
    """Remove the temporary files that killed writers of this path left: those that no process has locked."""
    for file in path.parent.glob(f".{escape(path.name)}.*tmp"):
        with suppress(OSError), locked(file):
            file.unlink(missing_ok=True)


def _place(temporary: Path, path: Path, *, exclusive: bool = False, previous: Path | None = None) -> None:
    """Rename a complete file to its final name, with the permissions of a new file."""
    make_readable(temporary, 0o666)  # temporary files are private
    if exclusive:
        os.link(temporary, path)  # unlike a rename, fails where the name is taken
        return
    if previous is not None and path.exists():
        os.replace(path, previous)
    os.replace(temporary, path)


def write_text(path: Path, text: str, *, exclusive: bool = False) -> None:
    """Write a text file atomically."""
    with atomic(path, exclusive=exclusive) as temporary:
        temporary.write_text(text, encoding="utf-8")


def json_text(value: Any) -> str:
    """Return indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any, *, exclusive: bool = False) -> None:
    """Write a JSON file atomically."""
    write_text(path, json_text(value), exclusive=exclusive)


def output_path(place: str) -> Path:
    """Return the path to write for a user's path: the target, if it is a link to a file, so that the link is kept."""
    path = Path(place)
    to_file = os.path.islink(path) and (os.path.isfile(path) or not os.path.exists(path))
    return Path(os.path.realpath(path)) if to_file else path


def is_stream(path: Path) -> bool:
    """Whether text is written directly to a path: a character device, a FIFO, or the file that is stdout."""
    try:
        found = path.stat()
        return stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode) or os.path.samestat(found, os.fstat(1))
    except OSError:  # there is no such file, or stdout is closed
        return False


def write_output(place: str, text: str) -> None:
    """Write text to a user's path: a file is replaced, a link is followed, a stream is written to."""
    path = output_path(place)
    if not is_stream(path):
        return write_text(path, text)
    sys.stdout.flush()
    try:
        # if stdout is a file, a second handle would not share its position
        stdout = os.path.samestat(path.stat(), os.fstat(1))
        with open(1 if stdout else path, "w", encoding="utf-8", closefd=not stdout) as file:
            file.write(text)
    except OSError as error:
        raise WriteError(path, error) from None


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write tensors as a safetensors file, atomically."""
    with atomic(path) as temporary:  # `save_file` would leave a temporary file of its own when the process is killed
        temporary.write_bytes(save(_without_sharing(tensors), metadata))


def write_sealed(path: Path, content: dict[str, Any], previous: Path | None = None) -> None:
    """Write a file for `torch.load`; the comment of its zip archive holds the SHA-256 of all bytes before it."""
    stream = io.BytesIO()
    torch.save(content, stream)
    with stream.getbuffer() as body, atomic(path, previous=previous) as temporary, temporary.open("wb") as file:
        body[-2:] = _SEAL.to_bytes(2, "little")  # the length of the comment, in the archive's last record
        file.write(body)
        file.write(_seal(body))


def sealed(content: bytes) -> bool | None:
    """Return whether the digest that `write_sealed` stored matches; `None` for an archive without one."""
    if content[-22:-18] == _END and content[-2:] == b"\0\0":
        return None
    return len(content) > _SEAL and content[-_SEAL:] == _seal(content[:-_SEAL])


def _seal(body: bytes | memoryview) -> bytes:
    return _MARK + hashlib.sha256(body).hexdigest().encode()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def no_link(path: str, flags: int) -> int:
    """Opener for `open(…, opener=no_link)` that refuses symbolic links: for files that are written in place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def append(path: Path, text: str) -> None:
    """Append text to a file."""
    try:
        with open(path, "a", encoding="utf-8", opener=no_link) as file:
            file.write(text)
    except OSError as error:
        raise WriteError(path, error) from None


def synced_size(path: Path) -> int:
    """Flush a file to the disk and return its size; 0 if it does not exist."""
    if not path.exists():
        return 0
    try:
        sync(path)
        return path.stat().st_size
    except OSError as error:
        raise WriteError(path, error) from None


def _without_sharing(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that share memory: safetensors refuses tied weights."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        part = tensor.detach().contiguous()
        address = part.untyped_storage().data_ptr()
        shared = address in seen or part.untyped_storage().nbytes() > part.nbytes
        separate[name] = part.clone() if shared else part
        seen.add(address)
    return separate
