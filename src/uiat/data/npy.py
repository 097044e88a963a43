"""Data of one's own as a pair of arrays: `NAME.npy` with the images, and the labels beside it."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uiat.data.files import is_file, nearest, reading
from uiat.data.images import Images
from uiat.data.npz import assemble
from uiat.errors import UserError

_PAIRS = (("images", "labels"), ("image", "label"), ("x", "y"), ("X", "y"))
"""Words in the name of a file of images, and those in the name of its labels."""
_NAMES = "classes.txt"


def read(path: Path, classes: tuple[str, ...] | None = None) -> Images:
    """Read images and labels; `classes` are those of the training file."""
    if not is_file(path):
        raise UserError(f"there is no file {path}: {nearest(path) or 'give the path of an .npy with images.'}")
    labels = find_labels(path)
    names = path.with_name(_NAMES)
    own = _read_names(names) if is_file(names) else None
    return assemble(path, _array(path), _array(labels), own, classes)


def find_labels(path: Path) -> Path:
    """Return the file of the labels: `x_train.npy` has its labels in `y_train.npy`, `a.npy` in `a-labels.npy`."""
    stems = [f"{path.stem}-labels", f"{path.stem}_labels"]
    for images, labels in _PAIRS:
        for separator in "_-":
            words = path.stem.split(separator)
            if images in words:
                stems.append(separator.join(labels if word == images else word for word in words))
    found = next((at for stem in stems if is_file(at := path.with_name(f"{stem}.npy")) and at != path), None)
    if found is None:
        raise UserError(f"{path} has no labels beside it: save them as {path.with_name(f'{stems[0]}.npy')}.")
    return found


def _array(path: Path) -> NDArray[Any]:
    with reading(path, "an .npy file"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)  # copied once, when it is brought to its final form
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive; name it .npz")
        return array


def _read_names(path: Path) -> tuple[str, ...]:
    with reading(path, "a list of class names"):
        return tuple(path.read_text(encoding="utf-8").splitlines())
