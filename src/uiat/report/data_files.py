"""Description of a data set for `uiat data`, and the .npz files that it writes."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from uiat.data import Splits, packed
from uiat.data.images import Images, Parts
from uiat.data.packing import Listing, PackOptions, pack_images
from uiat.errors import UserError
from uiat.io import atomic


def describe_data(name: str, parts: Parts, splits: Splits) -> dict[str, Any]:
    """Return the description of a data set: classes, shape, counts, size and location."""
    where = Path(parts.where)
    mapped = packed.is_packed(where)
    shares = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    size = sum(images.x.numel() for images in shares.values())
    return {
        "schema": 1,
        "name": name,
        "classes": list(splits.train.classes),
        "shape": list(splits.spec.shape),
        "counts": {part: _counts(images) for part, images in shares.items()},
        "megabytes": round(size / 1e6, 1),
        "memory": "read from the disk as needed" if mapped else "held in memory",
        "where": str(where),
        "notes": packed.read_manifest(where).notes if mapped else [],
    }


def _counts(images: Images) -> dict[str, int]:
    counts = images.y.bincount(minlength=len(images.classes)).tolist()
    return dict(zip(images.classes, counts, strict=True))


def write_npz(listing: Listing, options: PackOptions, out: Path) -> list[Path]:
    """Write the training images to `out` and the test images beside it; return both paths."""
    if "validation" in listing.parts:
        raise UserError(
            f"{listing.source} has a validation split, which an .npz cannot hold: "
            "pack it to a folder (an --out without .npz)."
        )
    test = out.with_name(f"{out.stem}-test{out.suffix}")
    if os.path.lexists(test):
        raise UserError(f"{test} is there already: choose another --out, or remove it.")
    if not out.absolute().parent.is_dir():
        raise UserError(f"cannot write {out}: there is no such folder, make it first.")
    with tempfile.TemporaryDirectory(prefix=".npz-", dir=out.absolute().parent) as temporary:
        whole = Path(temporary) / "packed"
        pack_images(listing, options, whole)
        parts = packed.read_packed(whole)
        for path, images in ((test, parts.test), (out, parts.train)):
            arrays = {"image": images.x.numpy(), "label": images.y.numpy(), "classes": np.array(images.classes)}
            with atomic(path) as temporary_file, temporary_file.open("wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
    return [out, test]
