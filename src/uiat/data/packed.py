"""A packed data set on the disk, which is read through a memory map.

`images.npy` (N, C, H, W) and `labels.npy` (N,) hold training, validation and test images in this order, `files.jsonl`
where each came from, and `manifest.json` all else. It appears whole or not at all.
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
    """What a packed data set says of itself."""

    source: str
    digest: str
    options: dict[str, Any]
    classes: list[str]
    shape: list[int]
    """Of an image: channels, height, width."""
    train: int
    validation: int
    test: int
    own_validation: bool
    """Whether the source has a validation split of its own; else it was drawn from the training images."""
    own_test: bool
    """The same for the test split."""
    notes: list[str]
    content: str = ""
    """The digest of all labels and of the pixels of 64 images, as they were packed; empty where an earlier version
    packed them. Other pixels of other images are not noticed."""
    kind: str = KIND
    schema: int = 1


def is_packed(folder: Path) -> bool:
    """Tell whether a folder holds a packed data set, whole or damaged."""
    return is_file(folder / MANIFEST) and is_file(folder / IMAGES)


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest."""
    with reading(folder / MANIFEST, "the manifest of a packed data set"):
        saved = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if saved.get("kind") != KIND or saved.get("schema") != 1:
            raise ValueError(f"its kind is not {KIND!r}, or another version of uiat wrote it")
        manifest = Manifest(**saved)
        counts = (manifest.train, manifest.validation, manifest.test)
        if not all(type(n) is int and n >= 0 for n in (*counts, *manifest.shape)) or len(manifest.shape) != 3:
            raise ValueError("its counts make no sense")
        if not all(isinstance(name, str) for name in manifest.classes):
            raise ValueError("its classes make no sense")
    return manifest


def read_packed(folder: Path) -> Parts:
    """Map a packed data set into memory; its pixels are read when they are needed."""
    manifest = read_manifest(folder)
    train, validation = manifest.train, manifest.validation
    count = train + validation + manifest.test
    with reading(folder / IMAGES, "packed images"):
        # Copy on write: torch wants arrays that can be written, and the file must not be.
        x = np.load(folder / IMAGES, mmap_mode="c", allow_pickle=False)
        if x.dtype != np.uint8 or list(x.shape) != [count, *manifest.shape] or not x.flags.c_contiguous:
            raise ValueError(f"{MANIFEST} speaks of {count} images of {manifest.shape}, it holds {x.dtype} {x.shape}")
    with reading(folder / LABELS, "packed labels"):
        y = np.load(folder / LABELS, allow_pickle=False)
        if y.dtype != np.int64 or y.shape != (count,):
            raise ValueError(f"{count} integers are expected, it holds {y.dtype} {y.shape}")
    images = Images(torch.from_numpy(x), torch.from_numpy(y), tuple(manifest.classes))
    if manifest.content and images.digest() != manifest.content:
        raise UserError(f"the labels or pixels in {folder} are not those that were packed: pack them again.")
    test, where = images.part(train + validation, count), str(folder)
    if manifest.own_validation:
        held = images.part(train, train + validation)
        return Parts(images.part(0, train), test, held, where=where)
    return Parts(images.part(0, train + validation), test, drawn=validation, where=where)


def write_packed(
    out: Path, manifest: Manifest, images: Iterable[NDArray[np.uint8]], labels: Iterable[int], files: Iterable[str]
) -> None:
    """Write a packed data set, whose images come one by one; `out` must not exist yet."""
    with published(out) as folder:
        count = manifest.train + manifest.validation + manifest.test
        with (folder / IMAGES).open("wb") as file:  # not through a map: a full disk must be an error, not a signal
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
        raise OSError(f"{out} exists, and is no packed data set")


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `out` when it is whole and on the disk; an `out` that exists stays.

    Nothing is left behind when the body fails. Folders of processes that were killed are removed.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    for left in out.parent.glob(f"{_TEMPORARY}*"):
        with suppress(OSError), locked(left):  # fails while its process lives
            shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=out.parent))
    try:
        with locked(folder, wait=True):
            make_readable(folder, 0o777)  # a temporary folder is private
            yield folder
            for file in folder.iterdir():
                sync(file)
            with suppress(OSError):  # another process was faster, with the same content
                folder.rename(out)
            sync(out.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
