"""Files that are either whole or not there."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor


@contextmanager
def atomic(path: Path, *, exclusive: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write; it takes the place of `path` only when it is whole and on the disk.

    With `exclusive`, a `path` that is there already is left alone: `FileExistsError`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp" if exclusive else f".{path.name}.tmp")
    try:
        yield temporary
        _sync(temporary)
        _place(temporary, path, exclusive=exclusive)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _place(temporary: Path, path: Path, *, exclusive: bool = False) -> None:
    """Give a whole file its name, with the rights that a plain new file has."""
    umask = os.umask(0)
    os.umask(umask)
    temporary.chmod(0o666 & ~umask)  # safetensors makes its files private
    if exclusive:
        os.link(temporary, path)  # unlike a rename, fails where the name is taken
    else:
        os.replace(temporary, path)


def write_json(path: Path, value: Any, *, exclusive: bool = False) -> None:
    """Write JSON for people and programs alike."""
    with atomic(path, exclusive=exclusive) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a state dict as safetensors."""
    with atomic(path) as temporary:
        save_file(_apart(tensors), temporary, metadata)


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give every tensor memory of its own: safetensors refuses tied weights."""
    owners: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        own = tensor.detach().contiguous()
        place = own.untyped_storage().data_ptr()
        apart[name] = own.clone() if place in owners or own.untyped_storage().nbytes() > own.nbytes else own
        owners.add(place)
    return apart


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
