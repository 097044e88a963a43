"""Files that are either whole or not there, and that can tell whether they still are."""

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
from safetensors.torch import save_file
from torch import Tensor

from uiat.errors import UserError
from uiat.locks import lock, locked

_MARK = b"uiat sha256 "
_SEAL = len(_MARK) + 64
_END = b"PK\x05\x06"
"""How the last record of a zip archive begins; it is 22 bytes long, then comes the comment."""


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_readable(path: Path, rights: int) -> None:
    """Give a private file or folder the rights of a plain new one: 0o666 or 0o777, less the process's mask."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(rights & ~umask)


class WriteError(UserError, OSError):
    """A file that the system did not take: a full disk, a spent quota, a broken device."""

    def __init__(self, path: Path, error: BaseException):
        self.path, self.reason = path, reason(error)
        super().__init__(f"cannot write {path}: {self.reason}; what was there before is kept.")


def reason(error: BaseException) -> str:
    """Return why a write failed, in the system's words."""
    words = error.reason if isinstance(error, WriteError) else (getattr(error, "strerror", None) or str(error))
    return re.sub(r"^.*I/O error: | \(os error \d+\)$", "", words)  # what safetensors says around them


@contextmanager
def atomic(path: Path, *, exclusive: bool = False, previous: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path to write; it replaces `path` only when it is complete and on the disk.

    Each call has a temporary file of its own, so that two writers of one `path` never mix: the last one wins. With
    `exclusive`, an existing `path` is kept: `FileExistsError`. With `previous`, it is kept under that name. Where the
    system cannot write the file, or `path` is a device or the like, a `WriteError` is raised and `path` is unchanged.
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
            _remove_abandoned(path)


def _new_temporary(path: Path) -> tuple[int, Path]:
    """Create a file of a name that nothing else has, no link is followed for, and hold its lock until it is closed."""
    while True:
        handle, name = mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with suppress(OSError):  # a file system without locks: nothing abandoned is removed there
            lock(handle, wait=True)
        if os.path.exists(name):
            return handle, Path(name)
        os.close(handle)  # another process took it for abandoned before it was locked


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of killed writers of this path: those that nobody has a lock on."""
    for file in path.parent.glob(f".{escape(path.name)}.*tmp"):
        with suppress(OSError), locked(file):
            file.unlink(missing_ok=True)


def _place(temporary: Path, path: Path, *, exclusive: bool = False, previous: Path | None = None) -> None:
    """Give a whole file its name, with the rights that a plain new file has."""
    make_readable(temporary, 0o666)  # safetensors makes its files private
    if exclusive:
        os.link(temporary, path)  # unlike a rename, fails where the name is taken
        return
    if previous is not None and path.exists():
        os.replace(path, previous)
    os.replace(temporary, path)


def write_text(path: Path, text: str, *, exclusive: bool = False) -> None:
    """Write a text file, whole or not at all."""
    with atomic(path, exclusive=exclusive) as temporary:
        temporary.write_text(text, encoding="utf-8")


def json_text(value: Any) -> str:
    """Return JSON for people and programs alike."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any, *, exclusive: bool = False) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json_text(value), exclusive=exclusive)


def output_path(place: str) -> Path:
    """Return the path to write for one that a user named: the target of a link to a file, so that the link stays."""
    path = Path(place)
    to_file = os.path.islink(path) and (os.path.isfile(path) or not os.path.exists(path))
    return Path(os.path.realpath(path)) if to_file else path


def is_stream(path: Path) -> bool:
    """Whether text is written straight to a path: a character device, a FIFO, or whatever stdout goes to."""
    try:
        found = path.stat()
        return stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode) or os.path.samestat(found, os.fstat(1))
    except OSError:  # there is no such file, or stdout is closed
        return False


def write_output(place: str, text: str) -> None:
    """Write text to a path that a user named: a file is replaced, a link is followed, a stream is written to."""
    path = output_path(place)
    if not is_stream(path):
        return write_text(path, text)
    sys.stdout.flush()
    try:
        # stdout that goes to a file has a position, which a second handle would not share
        stdout = os.path.samestat(path.stat(), os.fstat(1))
        with open(1 if stdout else path, "w", encoding="utf-8", closefd=not stdout) as file:
            file.write(text)
    except OSError as error:
        raise WriteError(path, error) from None


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a state dict as safetensors."""
    with atomic(path) as temporary:
        save_file(_apart(tensors), temporary, metadata)


def write_sealed(path: Path, content: dict[str, Any], previous: Path | None = None) -> None:
    """Write what `torch.load` reads, with the digest of all its bytes as the comment of the zip archive that it is."""
    stream = io.BytesIO()
    torch.save(content, stream)
    with stream.getbuffer() as body, atomic(path, previous=previous) as temporary, temporary.open("wb") as file:
        body[-2:] = _SEAL.to_bytes(2, "little")  # the length of the comment, in the archive's last record
        file.write(body)
        file.write(_seal(body))


def sealed(content: bytes) -> bool | None:
    """Return whether bytes are those that `write_sealed` wrote; `None` for an archive that never had a seal."""
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
    """Open a file that is written in place, for `open(…, opener=no_link)`; a link is refused, not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def append(path: Path, text: str) -> None:
    """Add lines to a file that grows."""
    try:
        with open(path, "a", encoding="utf-8", opener=no_link) as file:
            file.write(text)
    except OSError as error:
        raise WriteError(path, error) from None


def synced_size(path: Path) -> int:
    """Return the length of a file that grows, once all of it is on the disk; 0 without one."""
    if not path.exists():
        return 0
    try:
        sync(path)
        return path.stat().st_size
    except OSError as error:
        raise WriteError(path, error) from None


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give every tensor memory of its own: safetensors refuses tied weights."""
    owners: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        part = tensor.detach().contiguous()
        place = part.untyped_storage().data_ptr()
        apart[name] = part.clone() if place in owners or part.untyped_storage().nbytes() > part.nbytes else part
        owners.add(place)
    return apart
