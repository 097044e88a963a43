"""Packed data sets: folders whose images are read through a memory map.

`images.npy` (N, C, H, W) and `labels.npy` (N,) hold the training, validation and test images in this order,
`files.jsonl` the source of each image, and `manifest.json` everything else. A folder is written atomically.
"""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from uiat.data.files import is_file, reading
from uiat.data.images import Images, Parts
from uiat.errors import UserError
from uiat.io import make_readable, sync
from uiat.locks import locked

KIND = "uiat packed images"
IMAGES, LABELS, FILES, MANIFEST = "images.npy", "labels.npy", "files.jsonl", "manifest.json"
_TEMPORARY = ".packing-"


@dataclass(frozen=True)
class Manifest:
    """The description of a packed data set."""

    source: str
    digest: str
    options: dict[str, Any]
    classes: list[str]
    shape: list[int]
    """The shape of an image: channels, height, width."""
    train: int
    validation: int
    test: int
    own_validation: bool
    """Whether the source has a validation split; else it was drawn from the training images."""
    own_test: bool
    """Whether the source has a test split."""
    notes: list[str]
    content: str = ""
    """The digest of all labels and of the pixels of 64 images; empty if an earlier version packed them. Changed pixels
    of other images are not detected."""
    kind: str = KIND
    schema: int = 1


def is_packed(folder: Path) -> bool:
    """Return whether a folder holds a packed data set, damaged or not."""
    return is_file(folder / MANIFEST) and is_file(folder / IMAGES)


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a packed data set."""
    with reading(folder / MANIFEST, "the manifest of a packed data set"):
        saved = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if saved.get("kind") != KIND or saved.get("schema") != 1:
            raise ValueError(f"its kind is not {KIND!r}, or another version of uiat wrote it")
        manifest = Manifest(**saved)
        counts = (manifest.train, manifest.validation, manifest.test)
        if not all(type(n) is int and n >= 0 for n in (*counts, *manifest.shape)) or len(manifest.shape) != 3:
            raise ValueError("its counts or shape are invalid")
        if not all(isinstance(name, str) for name in manifest.classes):
            raise ValueError("its classes are not strings")
    return manifest


def read_packed(folder: Path) -> Parts:
    """Map a packed data set into memory; pixels are read when they are used."""
    manifest = read_manifest(folder)
    train, validation = manifest.train, manifest.validation
    count = train + validation + manifest.test
    with reading(folder / IMAGES, "packed images"):
        # Copy on write: torch needs writable arrays, and the file must not change.
        x = np.load(folder / IMAGES, mmap_mode="c", allow_pickle=False)
        if x.dtype != np.uint8 or list(x.shape) != [count, *manifest.shape] or not x.flags.c_contiguous:
            raise ValueError(f"{MANIFEST} has {count} images of {manifest.shape}, the file {x.dtype} {x.shape}")
    with reading(folder / LABELS, "packed labels"):
        y = np.load(folder / LABELS, allow_pickle=False)
        if y.dtype != np.int64 or y.shape != (count,):
            raise ValueError(f"{MANIFEST} has {count} labels, the file {y.dtype} {y.shape}")
    images = Images(torch.from_numpy(x), torch.from_numpy(y), tuple(manifest.classes))
    if manifest.content and images.digest() != manifest.content:
        raise UserError(f"the labels or pixels in {folder} have changed since they were packed: pack them again.")
    test, where = images.part(train + validation, count), str(folder)
    if manifest.own_validation:
        held = images.part(train, train + validation)
        return Parts(images.part(0, train), test, held, where=where)
    return Parts(images.part(0, train + validation), test, drawn=validation, where=where)


def write_packed(
    out: Path, manifest: Manifest, images: Iterable[NDArray[np.uint8]], labels: Iterable[int], files: Iterable[str]
) -> None:
    """Write a packed data set from an iterator of images; `out` must not exist."""
    with published(out) as folder:
        count = manifest.train + manifest.validation + manifest.test
        with (folder / IMAGES).open("wb") as file:  # a full disk under a memory map would be a signal
            facts = {"descr": "|u1", "fortran_order": False, "shape": (count, *manifest.shape)}
            np.lib.format.write_array_header_1_0(file, facts)
            for image in images:
                file.write(np.ascontiguousarray(image).tobytes())
        np.save(folder / LABELS, np.fromiter(labels, np.int64), allow_pickle=False)
        pixels, y = np.load(folder / IMAGES, mmap_mode="c"), np.load(folder / LABELS)
        whole = Images(torch.from_numpy(pixels), torch.from_numpy(y), tuple(manifest.classes))
        manifest = replace(manifest, content=whole.digest())
        (folder / FILES).write_text("".join(json.dumps(name) + "\n" for name in files), encoding="utf-8")
        (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
    if not is_packed(out):
        raise OSError(f"{out} exists and is not a packed data set")


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `out` when it is complete; an existing `out` is kept.

    The folder is removed if the body fails. Folders that killed processes left are removed as well.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    for left in out.parent.glob(f"{_TEMPORARY}*"):
        with suppress(OSError), locked(left):  # fails while its process is alive
            shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=out.parent))
    try:
        with locked(folder, wait=True):
            make_readable(folder, 0o777)  # a temporary folder is private
            yield folder
            for file in folder.iterdir():
                sync(file)
            with suppress(OSError):  # another process has written the same content
                folder.rename(out)
            sync(out.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
