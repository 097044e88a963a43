"""Folders of small pictures, as a person would have them."""

from pathlib import Path

import numpy as np
import pytest
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
    """Return the one sentence, and see that nothing is left in the cache."""
    with pytest.raises(UserError) as caught:
        read(folder, store, **changes)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert packed(store) == []
    return sentence
