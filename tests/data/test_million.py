"""Generated images by the million do not need their size in memory."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    not hasattr(os, "posix_fadvise") or not Path("/proc/self/status").exists(),
    reason="where the system keeps what was just unpacked, mapped pages count as memory of the process",
)


def zeros_npz(path: Path, count: int, classes: int = 10, shape: tuple[int, int, int] = (32, 32, 3)) -> Path:
    """Write a small, compressed file of many mostly black images, without holding them in memory."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("image.npy", "w", force_zip64=True) as file:
            facts = {"descr": "|u1", "fortran_order": False, "shape": (count, *shape)}
            np.lib.format.write_array_header_1_0(file, facts)
            size = int(np.prod(shape)) * 1000
            some = os.urandom(size // 50) + bytes(size - size // 50)  # so that it is not refused as a bomb
            for _ in range(count // 1000):
                file.write(some)
        with archive.open("label.npy", "w") as file:
            np.save(file, np.arange(count) % classes)
    return path


def measure(folder: Path, count: int, steps: int) -> dict[str, float]:
    g = np.random.default_rng(0)
    image = g.integers(0, 256, (600, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "originals.npz", image=image, label=np.arange(600) % 10)
    generated = zeros_npz(folder / "generated.npz", count)
    files = [str(folder / "originals.npz"), str(generated), str(steps)]
    command = [sys.executable, "-m", "tests.support.million", *files]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "UIAT_DATA": str(folder)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    assert found["samples"] == 590 + count
    return found


def test_a_hundred_thousand(tmp_path: Path) -> None:
    """300 MB of pixels. Measured growth: about 10 MB, of which the table of p is 4."""
    found = measure(tmp_path, 100_000, steps=6)
    assert found["growth"] < 100
    assert found["start"] < 20


@pytest.mark.slow
def test_a_million(tmp_path: Path) -> None:
    """3 GB of pixels. Measured growth: about 90 MB, of which the table of p is 41."""
    found = measure(tmp_path, 1_000_000, steps=30)
    assert found["growth"] < 500
    assert found["start"] < 60
