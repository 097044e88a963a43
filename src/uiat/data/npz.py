"""Data sets in .npz files, with arrays `image`, `label` and, optionally, `classes`.

Custom data is read into memory; generated images (Table 4) are unpacked once and memory-mapped.
"""

import math
import mmap
import os
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from uiat.data.fetch import data_folder
from uiat.data.files import MAX_FILE_BYTES, is_file, reading, to_images
from uiat.data.images import Images
from uiat.data.in_memory import check_labels, to_channels_first
from uiat.data.packed import published
from uiat.errors import UserError
from uiat.io import reason
from uiat.paths import suggest_path, user_path

_MOST_RATIO = 100
"""The compression ratio that an array of more than `MAX_FILE_BYTES` may have; photographs have less than 10."""
_CHUNK = 1 << 24
"""Bytes decompressed at a time."""


def read_npz(path: Path, classes: tuple[str, ...] | None = None) -> Images:
    """Read one file; `classes` are those of the training file, which a test file must have, too."""
    if not is_file(path):
        advice = suggest_path(path) or "give the path of an .npz with `image` and `label`."
        raise UserError(f"there is no file {path}: {advice}")
    arrays = _arrays(path)
    x, y = to_channels_first(path, arrays["image"]), check_labels(path, arrays["label"], len(arrays["image"]))
    saved = _names(path, arrays["classes"]) if "classes" in arrays else None
    if saved is not None and classes is not None and saved != classes:
        raise UserError(f"{path} has other `classes` than the training file: give both the same.")
    names = classes or saved or tuple(str(k) for k in range(int(y.max()) + 1))
    if y.max() >= len(names):
        raise UserError(
            f"{path} has label {y.max()}, but the training data has {len(names)} classes: "
            f"use labels from 0 to {len(names) - 1}."
        )
    return to_images(x, y, names)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with reading(path, "an .npz file"), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it holds a single array; save it with np.savez")
        with archive:
            missing = [key for key in ("image", "label") if key not in archive]
            if missing:
                raise _lacks(path, missing[0])
            names = [key for key in ("image", "label", "classes") if key in archive]
            assert archive.zip is not None  # until it is closed
            for name in names:
                _check_member(archive.zip, archive.zip.getinfo(f"{name}.npy"))
            return {name: archive[name] for name in names}


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise an error for an array whose size does not match its shape, or whose compression ratio is too high."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"{member.filename} is of version {version}; save it with np.savez")
        shape, _, dtype = readers[version](file)
        size, expected = member.file_size, file.tell() + math.prod(shape) * dtype.itemsize
    if size != expected and not dtype.hasobject:  # objects raise another error
        raise ValueError(f"{member.filename} has {size:,} bytes, and {expected:,} by its shape {shape}")
    if size > MAX_FILE_BYTES and size > _MOST_RATIO * member.compress_size:
        raise ValueError(f"{member.filename} decompresses from {member.compress_size:,} bytes to {size:,}")


def _lacks(path: Path, name: str) -> UserError:
    return UserError(f"{path} has no array `{name}`: save it with np.savez(path, image=…, label=…).")


def _names(path: Path, classes: NDArray[Any]) -> tuple[str, ...]:
    if classes.ndim != 1 or classes.dtype.kind != "U" or not classes.size:
        raise UserError(f"`classes` of {path} is {classes.dtype} of shape {classes.shape}: give one string per class.")
    return tuple(classes.tolist())


def read_generated(given: str, data_dir: str | None, originals: Images) -> Images:
    """Return memory-mapped generated images with the classes of the originals; only labels are read."""
    path, inside = user_path(given), data_folder(data_dir) / given
    if not is_file(path):
        if not is_file(inside):
            raise UserError(
                f"there are no generated images at {path} or {inside}: put the .npz (`image`, `label`) there, "
                "or name another with --data.generated.file."
            )
        path = inside
    image, label = mapped(path, data_folder(data_dir) / "unpacked")
    if image.dtype != np.uint8:
        raise UserError(f"`image` of {path} is {image.dtype}: give uint8, which can be memory-mapped.")
    x, y = torch.from_numpy(to_channels_first(path, image)), check_labels(path, label, len(image))
    if y.max() >= len(originals.classes):
        raise UserError(f"{path} has label {y.max()}, but the training data has {len(originals.classes)} classes.")
    images = Images(x, torch.from_numpy(y.astype(np.int64)), originals.classes)
    images.check(str(path))
    if x.shape[1] != originals.x.shape[1]:
        raise UserError(f"{path} has images of {x.shape[1]} channels, the training data has {originals.x.shape[1]}.")
    return images


def mapped(path: Path, store: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a memory-mapped `image` and the `label` of an .npz, which is unpacked once into the store.

    The copy is named after its content, so that the file can be moved. Checksums are verified on unpacking.
    """
    with reading(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for name in ("image", "label"):
            if f"{name}.npy" not in members:
                raise _lacks(path, name)
        image, label = members["image.npy"], members["label.npy"]
        for member in (image, label):
            _check_member(archive, member)
        size = image.file_size + label.file_size
        out = store / f"{path.stem}-{image.CRC:08x}-{label.CRC:08x}-{size}"
        if not all(
            is_file(at := out / info.filename) and at.stat().st_size == info.file_size for info in (image, label)
        ):
            _unpack(path, archive, (image, label), out)
        return _load(out)


def _load(folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    # Copy on write: torch needs writable arrays, and the file must not change.
    image = np.load(folder / "image.npy", mmap_mode="c", allow_pickle=False)
    with suppress(AttributeError, OSError):  # random access: reading ahead is wasted
        image._mmap.madvise(mmap.MADV_RANDOM)
    return image, np.load(folder / "label.npy", allow_pickle=False)


def _drop_cache(handle: int) -> None:
    """Remove a file from the page cache; macOS has no such call."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, vars(os)["POSIX_FADV_DONTNEED"])


def _unpack(path: Path, archive: zipfile.ZipFile, members: tuple[zipfile.ZipInfo, ...], out: Path) -> None:
    from uiat.progress import Ticker  # imported late: rich is not needed to load a network

    size = sum(info.file_size for info in members)
    try:
        shutil.rmtree(out, ignore_errors=True)  # an incomplete copy
        with published(out) as folder, Ticker(size, f"unpacking {path.name} (once)") as ticker:
            for info in members:
                with archive.open(info) as packed, (folder / info.filename).open("wb") as file:
                    while part := packed.read(_CHUNK):
                        file.write(part)
                        ticker.advance(len(part))
                    file.flush()
                    os.fsync(file.fileno())
                    _drop_cache(file.fileno())
            _load(folder)  # raises on a damaged array, so that the copy is not kept
    except OSError as error:
        raise UserError(
            f"cannot unpack {path} to {out.parent} ({reason(error)}): make room for {size / 1e9:.1f} GB, "
            "or name another folder with --data-dir."
        ) from None
