"""Data files: folders of images, and the official file formats.

The formats are written by hand, so that a reader's mistake cannot hide in a shared one.
"""

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from uiat.data import DataConfig, Splits, load_splits
from uiat.errors import UserError

CLASSES = ("blue", "green", "red")


def picture(label: int, seed: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """Return a noisy picture of (width, height) whose channel `label` is bright."""
    rng = np.random.default_rng([label, seed])
    pixels = rng.integers(0, 120, (size[1], size[0], 3))
    pixels[:, :, label % 3] += 100
    return Image.fromarray(pixels.astype(np.uint8))


def fill(folder: Path, counts: dict[str, int] | None = None, *, size: tuple[int, int] = (64, 48)) -> Path:
    """Write pictures into a sub-folder for each class, PNG and JPEG in turn."""
    for label, (name, count) in enumerate((counts or dict.fromkeys(CLASSES, 10)).items()):
        at = folder / name
        at.mkdir(parents=True)
        for k in range(count):
            picture(label, k, size).save(at / f"{k:03}.{'png' if k % 2 else 'jpg'}")
    return folder


def read(folder: Path, store: Path, **changes: object) -> Splits:
    """Load a folder with its cache in `store`."""
    return load_splits(DataConfig(name=str(folder), **changes), str(store))  # type: ignore[arg-type]


def packed(store: Path) -> list[Path]:
    """Return the packed data sets of a cache."""
    return sorted((store / "packed").iterdir()) if (store / "packed").exists() else []


def refused(folder: Path, store: Path, **changes: object) -> str:
    """Return the error message; assert that it is one line, and that nothing is left in the cache."""
    with pytest.raises(UserError) as caught:
        read(folder, store, **changes)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert packed(store) == []
    return message


Bytes = NDArray[np.uint8]
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
CIFAR100 = [f"fine_{k}" for k in range(100)]
COARSE = [f"group{k}" for k in range(20)]


def pixels(count: int, *shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def labels(count: int, classes: int) -> list[int]:
    return [k % classes for k in range(count)]


# Python 2 pickles, protocol 2


def python2(value: object) -> bytes:
    """Pickle as cPickle of Python 2 did: byte strings are U or T, NumPy's modules have their old names."""
    return b"\x80\x02" + _emit(value) + b"."


def _emit(value: object) -> bytes:
    if isinstance(value, bytes):
        return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_emit, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_emit(key) + _emit(item) for key, item in value.items()) + b"u"
    assert isinstance(value, np.ndarray)
    return array(value.tobytes(), value.shape)


def dtype(code: bytes = b"u1", tail: bytes = b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00") -> bytes:
    return b"cnumpy\ndtype\n" + _emit(code) + b"K\x00K\x01\x87R(K\x03U\x01|" + tail + b"tb"


def array(data: bytes, shape: tuple[int, ...], element: bytes | None = None, module: bytes = b"numpy.core") -> bytes:
    start = b"c" + module + b".multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    sides = b"(" + b"".join(map(_emit, shape)) + b"t"
    return start + b"(K\x01" + sides + (element or dtype()) + b"\x89" + _emit(data) + b"tb"


# CIFAR


def cifar10(data: Path, binary: bool, count: int = 20) -> tuple[Bytes, list[int]]:
    """Write CIFAR-10 with `count` images a file; return all pixels and labels, in the order of the files."""
    folder = data / ("cifar-10-batches-bin" if binary else "cifar-10-batches-py")
    folder.mkdir(parents=True)
    images, names = pixels(6 * count, 3072), [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]
    for k, name in enumerate(names):
        part, y = images[k * count : (k + 1) * count], labels(count, 10)
        if binary:
            rows = np.concatenate([np.array(y, np.uint8)[:, None], part], axis=1)
            (folder / f"{name}.bin").write_bytes(rows.tobytes())
            continue
        files = [f"{name}_{i}.png".encode() for i in range(count)]
        entry = {b"batch_label": name.encode(), b"labels": y, b"data": part, b"filenames": files}
        (folder / name).write_bytes(python2(entry))
    if binary:
        (folder / "batches.meta.txt").write_text("\n".join(CIFAR10) + "\n\n")
    else:
        meta = {b"num_cases_per_batch": 10000, b"label_names": [n.encode() for n in CIFAR10], b"num_vis": 3072}
        (folder / "batches.meta").write_bytes(python2(meta))
    return images, labels(count, 10) * 6


def cifar100(data: Path, binary: bool, count: int = 110) -> tuple[Bytes, list[int]]:
    folder = data / ("cifar-100-binary" if binary else "cifar-100-python")
    folder.mkdir(parents=True)
    images, fine = pixels(2 * count, 3072), labels(count, 100)
    coarse = [19 - label % 20 for label in fine]
    for part, name in zip((images[:count], images[count:]), ("train", "test"), strict=True):
        if binary:
            rows = np.concatenate([np.array([coarse, fine], np.uint8).T, part], axis=1)
            (folder / f"{name}.bin").write_bytes(rows.tobytes())
        else:
            entry = {b"coarse_labels": coarse, b"fine_labels": fine, b"data": part, b"batch_label": b"all"}
            (folder / name).write_bytes(python2(entry))
    if binary:
        (folder / "fine_label_names.txt").write_text("\n".join(CIFAR100) + "\n")
        (folder / "coarse_label_names.txt").write_text("\n".join(COARSE) + "\n")
    else:
        names = {b"fine_label_names": CIFAR100, b"coarse_label_names": COARSE}
        (folder / "meta").write_bytes(python2({key: [name.encode() for name in own] for key, own in names.items()}))
    return images, fine * 2


# Fashion-MNIST


def idx(values: Bytes) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def fashion(count: int = 20) -> dict[str, bytes]:
    """Return the four files by name, unpacked."""
    y = np.array(labels(count, 10), np.uint8)
    files = {}
    for seed, part in enumerate(("train", "t10k")):
        files[f"{part}-images-idx3-ubyte"] = idx(pixels(count, 28, 28, seed=seed))
        files[f"{part}-labels-idx1-ubyte"] = idx(y)
    return files
