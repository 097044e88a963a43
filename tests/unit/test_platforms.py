"""macOS lacks some calls of Linux; the code that uses them works without. `make types` checks all other names."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from uiat.cli.launch import cores
from uiat.data.npz import mapped

LINUX = [(os, "posix_fadvise"), (os, "POSIX_FADV_DONTNEED"), (os, "sched_getaffinity"), (mmap, "MADV_RANDOM")]
"""The last is there on macOS, but not everywhere."""


@pytest.fixture(autouse=True)
def without_the_calls_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in LINUX:
        monkeypatch.delattr(module, name, raising=False)


def test_generated_images_are_unpacked(tmp_path: Path) -> None:
    given = np.random.default_rng(0).integers(0, 256, (20, 8, 9, 3), dtype=np.uint8)
    np.savez_compressed(tmp_path / "a.npz", image=given, label=np.arange(20) % 3)
    image, label = mapped(tmp_path / "a.npz", tmp_path / "store")
    np.testing.assert_array_equal(image, given)
    np.testing.assert_array_equal(label, np.arange(20) % 3)


def test_cores_are_counted() -> None:
    assert cores() == (os.cpu_count() or 1)
