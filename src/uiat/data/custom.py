"""Custom data sets: a folder of images, a packed data set, an .npz, or the result of `module:callable`."""

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from uiat.data import image_folder, npz, packed
from uiat.data.data_config import DataConfig
from uiat.data.fetch import data_folder
from uiat.data.files import is_file
from uiat.data.images import Images, Parts, hold_out
from uiat.data.in_memory import MAX_CLASSES, as_image, class_names, image_and_label
from uiat.data.packing import Listing, PackOptions, cached
from uiat.errors import UserError, first_line
from uiat.paths import suggest_path, user_path
from uiat.plugins import import_callable

if TYPE_CHECKING:
    from PIL.Image import Image

FORMS = "a folder of images with a sub-folder for each class, an .npz, or module:callable"
_INSTEAD = "write a function that loads it, and give it as --data module:callable (docs/data.md has an example)."
_PROBES = 64
"""Images of each split in the digest of a callable's data: all of them would take too long."""


class Dataset(Protocol):
    """A map-style data set of (image, label), or of rows with these keys, which a callable returns."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def is_path(name: str) -> bool:
    """Return whether a data set is given as a path, existing or not."""
    if name.lower().endswith((".npz", ".npy")):
        return True
    return bool(name) and (name.startswith((".", "~")) or os.sep in name or os.path.lexists(name))


def is_callable(name: str) -> bool:
    """Return whether a data set is given as `module:callable`."""
    return ":" in name and not is_path(name)


def is_custom(name: str) -> bool:
    """Return whether the name of a data set that is not built in is that of a custom one."""
    return is_path(name) or is_callable(name)


def list_candidates() -> list[str]:
    """Return the entries of the current folder that could be custom data, for suggestions."""
    try:
        entries = list(os.scandir())
    except OSError:
        return []
    return [entry.name for entry in entries if os.path.isdir(entry) or entry.name.lower().endswith(".npz")]


def read_custom(config: DataConfig, data_dir: str | None, *, quiet: bool = False) -> Parts:
    """Read custom data; all but an .npz is packed on first use, which prints notes unless `quiet`."""
    path = user_path(config.name)
    if not path.is_dir() and path.suffix.lower() == ".npz":
        test = user_path(config.test) if config.test else None
        return Parts(*split_npz(path, test, config.test_fraction), where=str(path.absolute()))
    if config.test and path.is_dir():
        raise UserError(f"--data.test is given, but {path} is a folder: put the test images into {path}/test.")
    if config.test and is_callable(config.name):
        raise UserError(f"--data.test is given, but {config.name} returns its test images itself: omit it.")
    if packed.is_packed(path):
        return packed.read_packed(path)
    size = (config.size, config.size) if isinstance(config.size, int) else config.size
    store = data_folder(data_dir) / "packed"
    return packed.read_packed(cached(listing(config.name), PackOptions(size, config.test_fraction), store, quiet=quiet))


def split_npz(train: Path, test: Path | None, fraction: float = 0.2) -> tuple[Images, Images]:
    """Read (train, test); without a test file, a fixed stratified fraction is held out."""
    images = npz.read_npz(train)
    return hold_out(images, fraction) if test is None else (images, npz.read_npz(test, images.classes))


def listing(name: str) -> Listing:
    """List the images of a folder or of a callable's data sets."""
    if is_callable(name):
        return _from_callable(name)
    path = user_path(name)
    if path.suffix.lower() == ".npy":
        raise UserError(f"{path} is an .npy file, which is not supported: {_INSTEAD}")
    if not os.path.exists(path):
        if path.is_symlink():
            raise UserError(f"{path} is a link to itself or to a missing file: remove it, or give {FORMS}.")
        raise UserError(f"there is no {path}: {suggest_path(path) or f'give {FORMS}.'}")
    if not path.is_dir():
        raise UserError(f"{path} has no supported data format: give {FORMS}.")
    saved = is_file(path / "state.json") and is_file(path / "dataset_info.json")
    if saved or is_file(path / "dataset_dict.json"):
        raise UserError(f"{path} is a Hugging Face data set, which is not read directly: {_INSTEAD}")
    return image_folder.scan(path)


def _from_callable(name: str) -> Listing:
    """List the images that a callable returns for `train` and `test`; some are read for the digest."""
    load = import_callable(name, "--data")
    module_name, _, function = name.partition(":")
    file = getattr(sys.modules[module_name], "__file__", None)
    digest = hashlib.sha256(Path(file).read_bytes() if file else b"")
    sets: dict[str, Dataset] = {}
    for part in ("train", "test"):
        try:
            dataset = load(part)
            count = 0 if dataset is None else len(dataset)
        except Exception as error:  # user code may raise anything; the cause is kept for a debugger
            raise UserError(
                f"{name} failed for {part!r} ({first_line(error)}): it must return an object with __len__ and "
                "__getitem__, which returns (image, label), or a dict with these keys."
            ) from error
        if dataset is None and part == "test":
            continue  # test images are then held out of the training images
        if not count:
            raise UserError(f"{name} has no images for {part!r}: return at least one.")
        sets[part] = dataset
        _add_probes(digest, name, part, dataset)
    classes = _classes(name, sets)
    digest.update(repr(classes).encode())

    @contextmanager
    def open_image(place: str) -> "Iterator[tuple[Image, int]]":
        part, _, index = place.partition("/")
        yield _item(sets[part], int(index), len(classes))

    places = {part: [f"{part}/{k}" for k in range(len(dataset))] for part, dataset in sets.items()}
    source = f"{Path(file).resolve() if file else module_name}:{function}"
    return Listing(source, digest.hexdigest(), places, open_image, classes)


def _add_probes(digest: "hashlib._Hash", name: str, part: str, dataset: Dataset) -> None:
    """Add the length and some evenly spaced images of a data set to the digest; they must not be random."""
    count = len(dataset)
    digest.update(f"{part} {count}".encode())
    for k in range(0, count, -(-count // _PROBES)):
        try:
            (image, label), (again, _) = _item(dataset, k), _item(dataset, k)
        except Exception as error:
            why = first_line(error).removeprefix("ValueError: ")
            raise UserError(f"image {k} of {name} for {part!r} cannot be used: {why}.") from error
        if image.tobytes() != again.tobytes():
            raise UserError(
                f"{name} returns different pixels for the same image of {part!r}: remove random transforms; "
                "training images are augmented by --data.crop and --data.flip."
            )
        digest.update(f"{image.mode} {image.size} {label}".encode() + image.tobytes())


def _item(dataset: Dataset, index: int, classes: int = 0) -> "tuple[Image, int]":
    image, label = image_and_label(dataset[index])
    if not 0 <= label < (classes or MAX_CLASSES):
        most = f"{classes - 1}, for {classes} classes" if classes else "the number of classes, without gaps"
        raise ValueError(f"its label is {label}: give 0 to {most}")
    return as_image(image), label


def _classes(name: str, sets: Mapping[str, Dataset]) -> tuple[str, ...]:
    """Return the names of the classes, as data sets of torchvision and of Hugging Face have them; empty without."""
    named = {part: class_names(dataset) for part, dataset in sets.items()}
    if named.get("test") and named["test"] != named["train"]:
        raise UserError(f"{name} has other `classes` for 'test' than for 'train': give both the same.")
    return named["train"]
