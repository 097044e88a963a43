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
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; it takes the place of `path` only when it is whole and on the disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON for people and programs alike."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a state dict as safetensors."""
    with atomic(path) as temporary:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, temporary, metadata)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
