"""What the system has to be asked for around files and folders that appear whole."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def share(path: Path, rights: int) -> None:
    """Give a private file or folder the rights of a plain new one: 0o666 or 0o777, less the process's mask."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(rights & ~umask)
