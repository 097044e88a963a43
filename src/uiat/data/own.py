"""Data of one's own, named by its path: which reader it is for."""

import os
from pathlib import Path

from uiat.data import folder, huggingface, npy, npz, packed
from uiat.data.config import DataConfig
from uiat.data.fetch import data_folder
from uiat.data.files import nearest, user_path
from uiat.data.images import Images, Parts, hold_out
from uiat.data.listing import Listing
from uiat.data.packing import PackOptions, cached
from uiat.errors import UserError

FORMS = "a folder of images with a sub-folder for each class, an .npz, or an .npy with its labels"
_FILES = {".npz": npz.read, ".npy": npy.read}


def is_path(name: str) -> bool:
    """Tell whether a data set is named by a path, be it there or not."""
    if name.lower().endswith(tuple(_FILES)):
        return True
    return bool(name) and (name.startswith((".", "~")) or os.sep in name or os.path.exists(name))


def nearby() -> list[str]:
    """Return what is in the current folder that could be data of one's own."""
    try:
        entries = list(os.scandir())
    except OSError:
        return []
    return [entry.name for entry in entries if entry.is_dir() or entry.name.lower().endswith(tuple(_FILES))]


def read(config: DataConfig, data_dir: str | None) -> Parts:
    """Read data of one's own; image files are packed first, once."""
    path = user_path(config.name)
    kind = path.suffix.lower()
    if not path.is_dir() and kind in _FILES:
        test = user_path(config.test) if config.test else None
        train, held = read_files(path, test, _fraction(config))
        return Parts(train, held, where=str(path.absolute()))
    if not os.path.exists(path):
        raise UserError(f"there is no {path}: {nearest(path) or f'give {FORMS}.'}")
    if not path.is_dir():
        raise UserError(f"{path} is no data that can be read: give {FORMS}.")
    if config.test:
        raise UserError(f"data.test is given, but {path} is a folder: put its test images into {path}/test instead.")
    if packed.is_packed(path):
        return packed.read(path)
    store = data_folder(data_dir) / "packed"
    return packed.read(cached(listing(path), pack_options(config), store))


def read_files(train: Path, test: Path | None, fraction: float = 0.2) -> tuple[Images, Images]:
    """Return (train, test) of arrays; without a test file a stratified fraction, always the same, is held out."""
    images = _FILES[train.suffix.lower()](train)
    if test is None:
        return hold_out(images, fraction, seed=0)
    return images, _FILES[train.suffix.lower()](test, images.classes)


def listing(path: Path) -> Listing:
    """List the images of a folder, or of a Hugging Face data set."""
    return huggingface.scan(path) if huggingface.is_saved(path) else folder.scan(path)


def pack_options(config: DataConfig) -> PackOptions:
    """Return what a configuration asks of the packing."""
    size = (config.size, config.size) if isinstance(config.size, int) else config.size
    return PackOptions(size, _fraction(config))


def _fraction(config: DataConfig) -> float:
    if not 0 < config.test_fraction < 1:
        raise UserError(f"data.test_fraction is {config.test_fraction}: give a number between 0 and 1.")
    return config.test_fraction
