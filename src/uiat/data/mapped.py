"""An array of an .npz that is larger than memory: mapped where it lies, or from a copy that is unpacked once."""

import fcntl
import mmap
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from uiat.data.fetch import cache_folder
from uiat.data.files import reading
from uiat.errors import UserError
from uiat.io import atomic, reason
from uiat.progress import Ticker

CHUNK = 1 << 24
"""Bytes unpacked at a time."""
_LOCAL = 30
"""Length of the fixed part of the header before each member of a zip archive; it ends with two lengths."""


def map_array(path: Path, name: str) -> NDArray[Any]:
    """Return an array of an .npz without reading it. What is changed in it never reaches the file.

    An .npz is a zip archive: `np.savez` stores a member as it is, so it can be mapped at its place. What
    `np.savez_compressed` wrote is unpacked once, its checksum checked. The bytes of a stored member are taken as they
    are: to check them would be to read them all.
    """
    with reading(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        info = members.get(f"{name}.npy")
        if info is None:
            raise UserError(f"{path} has no array `{name}`: save it with np.savez(path, image=…, label=…).")
        if info.flag_bits & 1:
            raise ValueError("it is encrypted")
        if info.compress_type == zipfile.ZIP_STORED:
            with path.open("rb") as file:
                return _map(path, file, _begin(file, info), info.file_size)
        unpacked = _unpack(path, archive, info)
        with unpacked.open("rb") as file:
            return _map(unpacked, file, 0, info.file_size)


def _begin(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Return where a member's bytes begin; the lengths in its own header may differ from the archive's directory."""
    file.seek(info.header_offset)
    header = file.read(_LOCAL)
    if len(header) < _LOCAL or header[:4] != b"PK\3\4":
        raise ValueError("a member is not where the archive says")
    return info.header_offset + _LOCAL + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:], "little")


def _map(path: Path, file: IO[bytes], begin: int, size: int) -> NDArray[Any]:
    """Map the .npy of `size` bytes that begins there."""
    file.seek(begin)
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"an array in format {version}")
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds objects, which are never loaded")
    length = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if file.tell() - begin + length != size or path.stat().st_size < begin + size:
        raise ValueError("it is cut short")
    if not length:
        return np.empty(shape, dtype)
    order = "F" if fortran else "C"
    # Copy on write: torch wants memory that may be written, and the file stays as it is.
    found: NDArray[Any] = np.memmap(path, dtype, "c", file.tell(), shape, order)  # type: ignore[call-overload]
    with suppress(AttributeError, OSError):  # a random sample needs its own pages, not those behind them
        found._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    return found


def _unpack(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Path:
    """Return the unpacked member, from the cache if it is there; it is named after its content."""
    folder = cache_folder() / "unpacked"
    target = folder / f"{path.stem}-{Path(info.filename).stem}-{info.CRC:08x}-{info.file_size}.npy"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f".{target.name}.lock").open("w") as lock:
            with suppress(OSError):  # another process may be unpacking it; a file system may have no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_file() or target.stat().st_size != info.file_size:
                _write(path, archive, info, target)
    except OSError as error:
        raise UserError(
            f"cannot unpack {path} to {folder} ({reason(error)}): make room for {info.file_size / 1e9:.1f} GB, "
            "or save the file uncompressed, with np.savez."
        ) from None
    return target


def _write(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    ticker = Ticker(info.file_size, f"unpacking {path.name} (once)")
    with atomic(target) as temporary, archive.open(info) as packed, temporary.open("wb") as out, ticker:
        while part := packed.read(CHUNK):
            out.write(part)
            ticker.advance(len(part))
