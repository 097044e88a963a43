"""A Hugging Face data set that `save_to_disk` wrote; needs the package `datasets`."""

import io
import os
from pathlib import Path
from typing import IO, Any

from uiat.data.files import is_file, reading
from uiat.data.folder import SPLITS
from uiat.data.listing import Item, Listing, stamp
from uiat.errors import UserError


def is_saved(folder: Path) -> bool:
    """Tell whether a folder is one of `save_to_disk`."""
    one = is_file(folder / "state.json") and is_file(folder / "dataset_info.json")
    return one or is_file(folder / "dataset_dict.json")


def scan(folder: Path) -> Listing:
    """List the images of a saved data set; they are decoded by us, like any other file."""
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"{folder} is a Hugging Face data set, and the package datasets is not installed: pip install 'uiat[hf]'."
        ) from None
    with reading(folder, "a Hugging Face data set"):
        saved = datasets.load_from_disk(str(folder))
        splits = dict(saved) if isinstance(saved, datasets.DatasetDict) else {"train": saved}
    parts = _parts(folder, splits)
    image, label = _columns(folder, parts["train"], datasets)
    classes = _classes(folder, parts["train"], label, datasets)
    listed: dict[str, list[Item]] = {}
    encoded: dict[str, Any] = {}
    for part, table in parts.items():
        if (
            _columns(folder, table, datasets) != (image, label)
            or table.features[label] != parts["train"].features[label]
        ):
            raise UserError(f"the split {part} of {folder} has other columns or classes than its train: make them one.")
        labels = table[label][:]
        if wrong := [y for y in labels if not isinstance(y, int) or not 0 <= y < len(classes)]:
            raise UserError(f"the split {part} of {folder} has the label {wrong[0]}: give 0 to {len(classes) - 1}.")
        listed[part] = [Item(f"{part}/{k}", y) for k, y in enumerate(labels)]
        encoded[part] = table.cast_column(image, datasets.Image(decode=False))

    def open_image(place: str) -> IO[bytes]:
        part, _, row = place.partition("/")
        cell = encoded[part][int(row)][image]
        if cell is None or cell["bytes"] is None:  # a path alone could name any file of this machine
            raise ValueError("its bytes are not in the data set")
        return io.BytesIO(cell["bytes"])

    return Listing(str(folder.resolve()), classes, listed, open_image, _digest(folder))


def _parts(folder: Path, splits: dict[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name, table in splits.items():
        part = SPLITS.get(name.lower())
        if part is None or part in parts:
            raise UserError(
                f"{folder} has the splits {', '.join(splits)}: keep one each of train, validation and test."
            )
        parts[part] = table
    if "train" not in parts:
        raise UserError(f"{folder} has the splits {', '.join(splits)}, but no train: add it.")
    if empty := [part for part, table in parts.items() if not len(table)]:
        raise UserError(f"the split {empty[0]} of {folder} holds no images: fill it, or remove it.")
    return parts


def _columns(folder: Path, table: Any, datasets: Any) -> tuple[str, str]:
    """Return the columns of the image and of its class: the only ones of their kinds, or `image` and `label`."""
    images = [name for name, kind in table.features.items() if isinstance(kind, datasets.Image)]
    labels = [name for name, kind in table.features.items() if isinstance(kind, datasets.ClassLabel)]
    if not labels and "label" in table.features and "int" in str(getattr(table.features["label"], "dtype", "")):
        labels = ["label"]
    chosen = []
    for kind, names, usual in (("an image", images, "image"), ("a class label", labels, "label")):
        if len(names) != 1 and usual not in names:
            count = "no column" if not names else f"{len(names)} columns ({', '.join(names)})"
            raise UserError(f"{folder} has {count} with {kind}: keep one, called {usual}.")
        chosen.append(usual if usual in names else names[0])
    return chosen[0], chosen[1]


def _classes(folder: Path, table: Any, label: str, datasets: Any) -> tuple[str, ...]:
    kind = table.features[label]
    if isinstance(kind, datasets.ClassLabel):
        return tuple(kind.names)
    highest = max((y for y in table[label][:] if isinstance(y, int)), default=0)
    return tuple(str(k) for k in range(highest + 1))


def _digest(folder: Path) -> str:
    entries = []
    for at, _, names in os.walk(folder):
        for name in names:
            path = Path(at, name)
            if not name.startswith("cache-"):  # what the library leaves behind
                state = path.stat()
                entries.append((str(path.relative_to(folder)), state.st_size, state.st_mtime_ns))
    return stamp(entries)
