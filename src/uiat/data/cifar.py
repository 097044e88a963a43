"""CIFAR-10 and CIFAR-100 in either of their official layouts: binary (preferred, no pickle) and pickled."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uiat.data import fetch, pickles
from uiat.data.files import check_labels, is_file, reading, to_images
from uiat.data.images import Images
from uiat.errors import UserError

Bytes = NDArray[np.uint8]
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """The files of one data set in one layout, and how each is read."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    read: Callable[[Path], tuple[Bytes, NDArray[np.integer]]]
    """One file: images (N, 3072) and labels (N,)."""
    read_names: Callable[[Path], list[str]]

    def find(self, data: Path) -> Path | None:
        """Return the folder that holds all files of this layout: within `data`, or `data` itself."""
        return next((at for at in (data / self.folder, data) if not self.missing(at)), None)

    def missing(self, at: Path) -> list[str]:
        """Return the files that a folder lacks."""
        return [file for file in (*self.train, *self.test, self.names) if not is_file(at / file)]


def _binary(label_bytes: int) -> Callable[[Path], tuple[Bytes, NDArray[np.integer]]]:
    """Records of labels, of which the last counts (CIFAR-100 puts the coarse one first), and pixels."""

    def read(path: Path) -> tuple[Bytes, NDArray[np.integer]]:
        with reading(path, "a CIFAR binary file"):
            stored = np.frombuffer(path.read_bytes(), np.uint8)
        record = label_bytes + _PIXELS
        if not stored.size or stored.size % record:
            raise UserError(
                f"{path} has {stored.size} bytes, not a whole number of {record}-byte records: "
                "it is truncated, replace it with an intact copy."
            )
        rows = stored.reshape(-1, record)
        return rows[:, label_bytes:], rows[:, label_bytes - 1]

    return read


def _pickled(label_key: str) -> Callable[[Path], tuple[Bytes, NDArray[np.integer]]]:
    def read(path: Path) -> tuple[Bytes, NDArray[np.integer]]:
        with reading(path, "a CIFAR batch"):
            entry = pickles.load(path)
            images, labels = entry["data"], entry[label_key]
            count = len(labels)
            if not count or not isinstance(images, np.ndarray) or images.shape != (count, _PIXELS):
                raise ValueError(f"`data` must be {_PIXELS} bytes for each of the {count} labels")
            if not all(type(label) is int for label in labels):
                raise ValueError("labels must be integers")
            return images, np.array(labels, np.int64)

    return read


def _text_names(path: Path) -> list[str]:
    with reading(path, "a list of class names"):
        return path.read_text("utf-8").split()


def _pickled_names(key: str) -> Callable[[Path], list[str]]:
    def read(path: Path) -> list[str]:
        with reading(path, "a list of class names"):
            return [pickles.text(name) for name in pickles.load(path)[key]]

    return read


_BATCHES = tuple(f"data_batch_{k}" for k in range(1, 6))
_LAYOUTS = {
    10: (
        Layout(
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _BATCHES),
            ("test_batch.bin",),
            "batches.meta.txt",
            _binary(label_bytes=1),
            _text_names,
        ),
        Layout(
            "cifar-10-batches-py",
            _BATCHES,
            ("test_batch",),
            "batches.meta",
            _pickled("labels"),
            _pickled_names("label_names"),
        ),
    ),
    100: (
        Layout(
            "cifar-100-binary",
            ("train.bin",),
            ("test.bin",),
            "fine_label_names.txt",
            _binary(label_bytes=2),
            _text_names,
        ),
        Layout(
            "cifar-100-python",
            ("train",),
            ("test",),
            "meta",
            _pickled("fine_labels"),
            _pickled_names("fine_label_names"),
        ),
    ),
}


def load10(folder: Path, download: bool) -> tuple[Images, Images]:
    """Return CIFAR-10's (train, test)."""
    return _load(10, folder, download)


def load100(folder: Path, download: bool) -> tuple[Images, Images]:
    """Return CIFAR-100's (train, test) with its 100 fine labels."""
    return _load(100, folder, download)


def _load(classes: int, data: Path, download: bool) -> tuple[Images, Images]:
    for layout in _LAYOUTS[classes]:
        if found := layout.find(data):
            return _read(layout, found, classes)
    binary, pickled = _LAYOUTS[classes]
    wanted = fetch.Wanted(f"CIFAR-{classes}", data, f"its folder {binary.folder} or {pickled.folder}")
    at = data / binary.folder
    if not os.path.exists(at):
        fetch.archive(f"cifar-{classes}-binary.tar.gz", binary.folder, wanted, download)
    if missing := binary.missing(at):
        raise UserError(f"{at} lacks {missing[0]}: complete it, or delete it to have it downloaded anew.")
    return _read(binary, at, classes)


def _read(layout: Layout, at: Path, classes: int) -> tuple[Images, Images]:
    names = tuple(layout.read_names(at / layout.names))
    if len(names) != classes:
        raise UserError(
            f"{at / layout.names} has {len(names)} class names instead of {classes}: replace it with an intact copy."
        )

    def part(files: tuple[str, ...]) -> Images:
        read = [layout.read(at / file) for file in files]
        for file, (_, labels) in zip(files, read, strict=True):
            check_labels(at / file, labels, classes)
        x = np.concatenate([images for images, _ in read]).reshape(-1, 3, 32, 32)
        return to_images(x, np.concatenate([labels for _, labels in read]), names)

    return part(layout.train), part(layout.test)
