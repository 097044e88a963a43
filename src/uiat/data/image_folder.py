"""Folders of images with a sub-folder for each class: `cats/1.png`, or `train/cats/1.png` if there are splits."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
_Inode = tuple[int, int]


@dataclass
class _Walk:
    """The files found in a folder."""

    stamps: list[tuple[str, int, int]] = field(default_factory=list)
    """Relative path, size and modification time (ns) of each image: a rewritten file has another time."""
    others: list[str] = field(default_factory=list)
    """Files that are not images."""


def scan(folder: Path) -> Listing:
    """List the images of a folder without decoding them."""
    splits = _splits(folder)
    walk = _Walk()
    images = {
        part: {name: list(_images(at, folder, (), walk)) for name, at in _classes(where, walk, folder).items()}
        for part, where in splits.items()
    }
    if not any(files for part in images.values() for files in part.values()):
        raise UserError(
            f"{folder} has no images in sub-folders: create a sub-folder for each class, such as {folder}/cats."
        )
    _check_classes(folder, splits, images)
    classes = tuple(sorted(images["train"]))
    parts = {part: [place for name in sorted(group) for place in group[name]] for part, group in images.items()}
    for part, places in parts.items():
        if not places:
            raise UserError(f"the split {splits[part]} has no images: add some, or remove the folder.")
    number = {name: k for k, name in enumerate(classes)}
    label = {place: number[name] for group in images.values() for name, places in group.items() for place in places}
    root = folder.resolve()

    @contextmanager
    def open_image(place: str) -> "Iterator[tuple[Image, int]]":
        with (root / place).open("rb") as file, opened(file) as image:
            yield image, label[place]

    return Listing(str(root), _digest(walk.stamps), parts, open_image, classes, _notes(images, classes, walk))


def _digest(stamps: list[tuple[str, int, int]]) -> str:
    digest = hashlib.sha256()
    for stamp in sorted(stamps):
        digest.update(repr(stamp).encode())
    return digest.hexdigest()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the sorted entries of a folder without hidden files and those that operating systems create."""
    try:
        with os.scandir(folder) as entries:
            shown = [e for e in entries if not e.name.startswith(".") and e.name not in _JUNK]
    except OSError as error:
        raise UserError(f"cannot read the folder {folder}: {error.strerror}.") from None
    return sorted(shown, key=lambda entry: entry.name)


def find_images(folder: Path) -> Iterator[Path]:
    """Yield the image files in a folder and its sub-folders, sorted by name; links to folders are not followed."""
    for entry in _entries(folder):
        path = folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from find_images(path)
        elif path.suffix.lower() in SUFFIXES and not os.path.isdir(path):
            yield path


def _folders(folder: Path) -> list[Path]:
    return [folder / entry.name for entry in _entries(folder) if os.path.isdir(entry.path)]


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


def _classes(folder: Path, walk: _Walk, root: Path) -> dict[str, Path]:
    """Return the folder of each class of a split."""
    for entry in _entries(folder):
        if not os.path.isdir(entry.path):
            walk.others.append(str((folder / entry.name).relative_to(root)))
    classes = {at.name: at for at in _folders(folder)}
    folded: dict[str, str] = {}
    for name in classes:
        if not name.isprintable() or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise UserError(f"{folder} has a class whose name {name!r} cannot be printed: rename it.")
        key = normalize("NFC", name).casefold()
        if key in folded:
            raise UserError(
                f"{folder} has two classes that differ only by case or accents, {folded[key]} and {name}: "
                "rename or merge them."
            )
        folded[key] = name
    return classes


def _images(folder: Path, root: Path, above: tuple[_Inode, ...], walk: _Walk) -> Iterator[str]:
    """Yield the relative paths of the images in a folder and its sub-folders."""
    here = _inode(folder)
    if here in above:
        raise UserError(f"{folder} is a link to a folder that contains it: remove it.")
    if len(above) >= MAX_DEPTH:
        raise UserError(f"{root} has folders nested more than {MAX_DEPTH} deep: move their images up, or remove them.")
    for entry in _entries(folder):
        path = folder / entry.name
        if os.path.isdir(path):
            yield from _images(path, root, (*above, here), walk)
            continue
        place = str(path.relative_to(root))
        if path.suffix.lower() not in SUFFIXES:
            walk.others.append(place)
            continue
        try:
            state = path.stat()
        except OSError as error:
            raise UserError(f"{path} is a broken link or cannot be read ({error.strerror}): remove it.") from None
        if not stat.S_ISREG(state.st_mode):
            raise UserError(f"{path} is not a regular file: remove it.")
        walk.stamps.append((place, state.st_size, state.st_mtime_ns))
        yield place


def _inode(path: Path) -> _Inode:
    state = path.stat()
    return state.st_dev, state.st_ino


def _check_classes(folder: Path, splits: dict[str, Path], images: dict[str, dict[str, list[str]]]) -> None:
    owners: dict[_Inode, Path] = {}
    for part, where in splits.items():
        for name, files in images[part].items():
            if name not in images["train"]:
                raise UserError(
                    f"the class {name} of {where} is not in {splits['train']}: "
                    f"it is not trained; the training classes are {some(sorted(images['train']))}."
                )
            if not files and part == "train":
                raise UserError(f"the class folder {where / name} has no images: add some, or remove it.")
            other = owners.setdefault(_inode(where / name), where / name)
            if other != where / name:
                raise UserError(f"{other} and {where / name} are the same folder: remove one of them.")


def _notes(images: dict[str, dict[str, list[str]]], classes: Sequence[str], walk: _Walk) -> tuple[str, ...]:
    lacking = {part: [name for name in classes if not group.get(name)] for part, group in images.items()}
    notes = [
        f"the {part} split has no images of {some(names)}: accuracies do not cover them"
        for part, names in lacking.items()
        if names
    ]
    if walk.others:
        notes.append(f"skipped, since they are not images in a class folder: {some(walk.others)}")
    return tuple(sorted(notes))
