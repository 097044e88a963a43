"""SVHN, the street-view house numbers, cropped to 32×32 (format 2 of its authors)."""

from pathlib import Path

import numpy as np

from uiat.data import fetch, matlab
from uiat.data.files import check_labels, is_file, reading, to_images
from uiat.data.images import Images

_FILES = ("train_32x32.mat", "test_32x32.mat")


def load(folder: Path, download: bool) -> tuple[Images, Images]:
    """Return (train, test), without the extra training images."""
    wanted = fetch.Wanted("SVHN", folder, " and ".join(_FILES))
    paths = [_find(folder, name) or fetch.file(name, folder / "svhn", wanted, download) for name in _FILES]
    return _read(paths[0]), _read(paths[1])


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / "svhn" / name, folder / name) if is_file(path)), None)


def _read(path: Path) -> Images:
    with reading(path, "SVHN's MATLAB file"):
        content = matlab.read(path, ("X", "y"))
        x, y = content["X"], content["y"]
        if x.dtype != np.uint8 or x.ndim != 4 or x.shape[:3] != (32, 32, 3) or not x.shape[3]:
            raise ValueError(f"X must be uint8 of shape 32×32×3×N, not {x.dtype} of {x.shape}")
        if y.dtype.kind not in "iu" or y.shape != (x.shape[3], 1):
            raise ValueError(f"y must be {x.shape[3]}×1 integers, not {y.dtype} of {y.shape}")
    labels = y[:, 0]
    check_labels(path, labels, classes=10, first=1)
    digits = labels % 10  # 10 stands for the digit 0
    return to_images(x.transpose(3, 2, 0, 1), digits, tuple(str(k) for k in range(10)))
