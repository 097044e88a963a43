"""Folders of images with a sub-folder for each class: `cats/1.png`, or `train/cats/1.png` if there are splits."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import normalize

from uiat.data.files import some
from uiat.data.packing import Listing
from uiat.data.pixels import opened
from uiat.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".avif", ".bmp", ".gif"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
)
"""Suffixes of image files."""
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Names of sub-folders, in any case, that hold a split if they contain sub-folders."""
_JUNK = ("__MACOSX", "Thumbs.db", "desktop.ini", "@eaDir")
MAX_DEPTH = 100
"""How deeply folders may be nested in a class."""


def scan(folder: Path) -> Listing:
    """List the images of a folder without decoding them."""
    splits, others = _splits(folder), list[str]()
    images = {part: _by_class(where, folder, others) for part, where in splits.items()}
    if not any(files for part in images.values() for files in part.values()):
        raise UserError(
            f"{folder} has no images in sub-folders: create a sub-folder for each class, such as {folder}/cats."
        )
    _check_classes(splits, images)
    classes = tuple(sorted(images["train"]))
    parts = {part: [place for name in sorted(group) for place in group[name]] for part, group in images.items()}
    for part, places in parts.items():
        if not places:
            raise UserError(f"the split {splits[part]} has no images: add some, or remove the folder.")
    number = {name: k for k, name in enumerate(classes)}
    label = {place: number[name] for group in images.values() for name, places in group.items() for place in places}
    digest = hashlib.sha256()
    for stamp in sorted(_stamp(folder, place) for place in label):
        digest.update(repr(stamp).encode())
    root = folder.resolve()

    @contextmanager
    def open_image(place: str) -> "Iterator[tuple[Image, int]]":
        with (root / place).open("rb") as file, opened(file) as image:
            yield image, label[place]

    return Listing(str(root), digest.hexdigest(), parts, open_image, classes, _notes(images, classes, others))


def find_images(folder: Path) -> Iterator[Path]:
    """Yield the image files in a folder and its sub-folders, sorted by name; links to folders are not followed."""
    for path in _files(folder, links=False):
        if path.suffix.lower() in SUFFIXES and not os.path.isdir(path):
            yield path


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the sorted entries of a folder without hidden files and those that operating systems create."""
    try:
        with os.scandir(folder) as entries:
            shown = [e for e in entries if not e.name.startswith(".") and e.name not in _JUNK]
    except OSError as error:
        raise UserError(f"cannot read the folder {folder}: {error.strerror}.") from None
    return sorted(shown, key=lambda entry: entry.name)


def _folders(folder: Path) -> list[Path]:
    return [folder / entry.name for entry in _entries(folder) if os.path.isdir(entry.path)]


def _files(folder: Path, above: tuple[Path, ...] = (), *, links: bool = True) -> Iterator[Path]:
    """Yield the files in a folder and its sub-folders, sorted by name; `links` to folders are followed."""
    here = folder.resolve()
    if here in above:
        raise UserError(f"{folder} is a link to a folder that contains it: remove it.")
    if len(above) > MAX_DEPTH:
        raise UserError(f"{above[1]} has folders nested more than {MAX_DEPTH} deep: move their images up.")
    for entry in _entries(folder):
        path = folder / entry.name
        if os.path.isdir(path) and (links or not path.is_symlink()):
            yield from _files(path, (*above, here), links=links)
        else:
            yield path


def _splits(folder: Path) -> dict[str, Path]:
    """Return the folder of each split; a folder without splits is `train`."""
    below = _folders(folder)
    named = [at for at in below if at.name.lower() in SPLITS and _folders(at)]
    if not named:
        return {"train": folder}
    splits: dict[str, Path] = {}
    for at in named:
        part = SPLITS[at.name.lower()]
        if part in splits:
            raise UserError(
                f"{folder} has two folders for one split, {splits[part].name} and {at.name}: keep one of them."
            )
        splits[part] = at
    if "train" not in splits:
        raise UserError(f"{folder} has a split {named[0].name} but no train: add train, or rename {named[0].name}.")
    if stray := [at for at in below if at not in named]:
        raise UserError(
            f"{folder} has the folder {stray[0].name} beside its splits {', '.join(at.name for at in named)}: "
            "move it into one of them, or elsewhere."
        )
    return splits


def _by_class(split: Path, folder: Path, others: list[str]) -> dict[str, list[str]]:
    """Return the images of each class of a split, relative to `folder`; other files are appended to `others`."""
    images: dict[str, list[str]] = {at.name: [] for at in _folders(split)}
    folded: dict[str, str] = {}
    for name in images:
        if not name.isprintable():
            raise UserError(f"{split} has a class whose name {name!r} cannot be printed: rename it.")
        other = folded.setdefault(normalize("NFC", name).casefold(), name)
        if other != name:
            raise UserError(
                f"{split} has two classes that differ only by case or accents, {other} and {name}: rename one of them."
            )
    for path in _files(split):
        name = path.relative_to(split).parts[0]
        is_image = name in images and path.suffix.lower() in SUFFIXES
        (images[name] if is_image else others).append(str(path.relative_to(folder)))
    return images


def _stamp(folder: Path, place: str) -> tuple[str, int, int]:
    """Return the path, size and modification time (ns) of an image: a rewritten file has another time."""
    path = folder / place
    try:
        state = path.stat()
    except OSError as error:
        raise UserError(f"{path} is a broken link or cannot be read ({error.strerror}): remove it.") from None
    if not stat.S_ISREG(state.st_mode):
        raise UserError(f"{path} is not a regular file: remove it.")
    return place, state.st_size, state.st_mtime_ns


def _check_classes(splits: dict[str, Path], images: dict[str, dict[str, list[str]]]) -> None:
    owners: dict[Path, Path] = {}
    for part, where in splits.items():
        for name, files in images[part].items():
            if name not in images["train"]:
                raise UserError(
                    f"the class {name} of {where} is not in {splits['train']}: "
                    f"it is not trained; the training classes are {some(sorted(images['train']))}."
                )
            if not files and part == "train":
                raise UserError(f"the class folder {where / name} has no images: add some, or remove it.")
            other = owners.setdefault((where / name).resolve(), where / name)
            if other != where / name:
                raise UserError(f"{other} and {where / name} are the same folder: remove one of them.")


def _notes(images: dict[str, dict[str, list[str]]], classes: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    lacking = {part: [name for name in classes if not group.get(name)] for part, group in images.items()}
    notes = [
        f"the {part} split has no images of {some(names)}: accuracies do not cover them"
        for part, names in lacking.items()
        if names
    ]
    if others:
        notes.append(f"skipped, since they are not images in a class folder: {some(others)}")
    return tuple(sorted(notes))
