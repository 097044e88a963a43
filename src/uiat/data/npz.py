"""Data of one's own: an .npz with `image`, `label` and, optionally, the names of the `classes`."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uiat.data.files import is_file, nearest, reading, to_images
from uiat.data.images import Images
from uiat.errors import UserError

_MOST_CLASSES = 100_000
_CHUNK = 4096


def read(path: Path, classes: tuple[str, ...] | None = None) -> Images:
    """Read one file; `classes` are those of the training file, which a test file has to agree with."""
    if not is_file(path):
        advice = nearest(path) or "give the path of an .npz with `image` and `label`."
        raise UserError(f"there is no file {path}: {advice}")
    arrays = _arrays(path)
    names = _names(path, arrays["classes"]) if "classes" in arrays else None
    return assemble(path, arrays["image"], arrays["label"], names, classes)


def assemble(
    path: Path,
    image: NDArray[Any],
    label: NDArray[Any],
    own: tuple[str, ...] | None,
    classes: tuple[str, ...] | None,
) -> Images:
    """Check the arrays of a file and make images of them; `own` are the file's names of the classes."""
    x, y = pixels(path, image), labels(path, label, len(image))
    if own is not None and classes is not None and own != classes:
        raise UserError(f"{path} has other `classes` than the training file: give both the same.")
    names = classes or own or tuple(str(k) for k in range(int(y.max()) + 1))
    if y.max() >= len(names):
        raise UserError(
            f"{path} has label {y.max()}, but the training data has {len(names)} classes: "
            f"number them from 0 to {len(names) - 1}."
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
                raise UserError(f"{path} has no array `{missing[0]}`: save it with np.savez(path, image=…, label=…).")
            return {key: archive[key] for key in ("image", "label", "classes") if key in archive}


def pixels(path: Path, image: NDArray[Any]) -> NDArray[np.uint8]:
    """Bring images to uint8 (N, C, H, W)."""
    if image.ndim == 3:
        image = image[..., None]
    if image.ndim != 4 or not (image.shape[3] in (1, 3) or image.shape[1] in (1, 3)):
        raise UserError(
            f"`image` of {path} has shape {image.shape}: give N×H×W×C or N×C×H×W with 1 or 3 channels, or N×H×W."
        )
    if not len(image):
        raise UserError(f"{path} holds no images.")
    if image.shape[3] in (1, 3):
        image = image.transpose(0, 3, 1, 2)
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind != "f":
        raise UserError(f"`image` of {path} is {image.dtype}: give uint8, or floats from 0 to 1.")
    return _bytes(path, image)


def _bytes(path: Path, image: NDArray[Any]) -> NDArray[np.uint8]:
    out = np.empty(image.shape, np.uint8)
    for start in range(0, len(image), _CHUNK):
        part = image[start : start + _CHUNK]
        if np.isnan(part).any():
            raise UserError(f"`image` of {path} has pixels that are not numbers (NaN): remove them.")
        low, high = float(part.min(initial=0)), float(part.max(initial=0))
        if low < 0 or high > 1:
            raise UserError(
                f"`image` of {path} has the pixel value {low if low < 0 else high:g}, outside 0 to 1: "
                "scale floats to [0, 1], or give uint8."
            )
        out[start : start + _CHUNK] = np.rint(part.astype(np.float64) * 255)
    return out


def labels(path: Path, label: NDArray[Any], count: int) -> NDArray[np.integer]:
    """Return labels that are one integer from 0 for each of `count` images, and refuse others."""
    if label.dtype.kind not in "iu":
        raise UserError(f"`label` of {path} is {label.dtype}: give integers from 0.")
    if label.shape != (count,):
        raise UserError(f"`label` of {path} has shape {label.shape} for {count} images: give one label an image.")
    if label.min() < 0:
        raise UserError(f"{path} has label {label.min()}: number the classes from 0.")
    if label.max() >= _MOST_CLASSES:
        raise UserError(f"{path} has label {label.max()}: number the classes from 0 without gaps.")
    return label


def _names(path: Path, classes: NDArray[Any]) -> tuple[str, ...]:
    if classes.ndim != 1 or classes.dtype.kind != "U" or not classes.size:
        raise UserError(f"`classes` of {path} is {classes.dtype} of shape {classes.shape}: give one string a class.")
    return tuple(classes.tolist())
