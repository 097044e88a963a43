"""Data sets of grey images: scikit-learn's digits and Fashion-MNIST.

The digits are 1,797 handwritten ones of 8×8 pixels. Fashion-MNIST has images of clothes of 28×28 pixels, in the idx
files of its authors, compressed or not.
"""

import gzip
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uiat.data import fetch
from uiat.data.files import check_file_size, check_labels, first_file, reading, to_images
from uiat.data.images import Images, hold_out

_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
_SYSTEM = Path("/usr/share/datasets/fashion-mnist")
"""The folder of Debian's package of the data set."""


def load_digits(folder: Path, download: bool) -> tuple[Images, Images]:
    """Return a fixed split (train, test) of the digits; the arguments are not used, since scikit-learn has the data."""
    from sklearn import datasets  # slow to import

    digits = datasets.load_digits()
    x = np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None]
    return hold_out(to_images(x, digits.target, tuple(str(k) for k in range(10))), 0.2)


def load_fashion(folder: Path, download: bool) -> tuple[Images, Images]:
    """Read Fashion-MNIST's (train, test)."""
    target = folder / "fashion-mnist"
    for at in (target, folder / "FashionMNIST" / "raw", folder, _SYSTEM):
        paths = [path for name in _FILES if (path := _find(at, name))]
        if len(paths) == len(_FILES):
            break
    else:
        wanted = fetch.Wanted("Fashion-MNIST", target, ".gz, ".join(_FILES) + ".gz")
        paths = [_find(target, name) or fetch.file(f"{name}.gz", target, wanted, download) for name in _FILES]
    return _read(paths[0], paths[1]), _read(paths[2], paths[3])


def _find(folder: Path, name: str) -> Path | None:
    return first_file(folder / name, folder / f"{name}.gz")


def _read(images: Path, labels: Path) -> Images:
    x, y = _idx(images, dims=3), _idx(labels, dims=1)
    with reading(labels, "the labels of Fashion-MNIST"):
        if len(x) != len(y):
            raise ValueError(f"{len(y)} labels for the {len(x)} images of {images.name}")
    with reading(images, "the images of Fashion-MNIST"):
        if not len(x) or x.shape[1:] != (28, 28):
            raise ValueError(f"images must be N×28×28, not {x.shape}")
    check_labels(labels, y, len(_CLASSES))
    return to_images(x[:, None], y, _CLASSES)


def _idx(path: Path, dims: int) -> NDArray[np.uint8]:
    """Read an idx file: 0, 0, 8 (uint8), the number of dimensions, each as a big-endian int32, then the data."""
    with reading(path, "an idx file"):
        check_file_size(path.stat().st_size)
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            start = file.read(4)
            if start != bytes([0, 0, 8, dims]):
                raise ValueError(f"it starts with {start.hex()} instead of 000008{dims:02}")
            shape = tuple(np.frombuffer(file.read(4 * dims), ">u4").tolist())
            check_file_size(math.prod(shape))
            content = file.read(math.prod(shape) + 1)  # one byte more, so that gzip verifies its checksum
        return np.frombuffer(content, np.uint8).reshape(shape)
