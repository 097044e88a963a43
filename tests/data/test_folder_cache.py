"""The packed copy of a folder: written once and atomically, and memory-mapped."""

import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL.Image import Image

from tests.support.data_files import packed, picture, read, refused
from uiat.data import DataConfig, Loader, load_splits
from uiat.data import packed as packed_set
from uiat.data.packed import Manifest
from uiat.data.pixels import to_pixels
from uiat.errors import UserError


def test_the_second_time_nothing_is_decoded(folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read(folder, store)
    monkeypatch.setattr("uiat.data.packing.to_pixels", None)
    after = read(folder, store)
    assert torch.equal(before.train.x, after.train.x)
    assert len(packed(store)) == 1


def test_the_pixels_stay_on_disk(folder: Path, store: Path) -> None:
    splits = read(folder, store)
    base = splits.train.x.untyped_storage().data_ptr()
    assert splits.validation.x.untyped_storage().data_ptr() == base
    assert splits.test.x.untyped_storage().data_ptr() == base
    splits.train.x[0] = 7  # a program's own copy of the page
    assert not torch.equal(splits.train.x[0], read(folder, store).train.x[0])


def test_a_changed_folder_is_packed_again(folder: Path, store: Path) -> None:
    read(folder, store)
    (old,) = packed(store)
    picture(0, 99).save(folder / "blue" / "more.png")
    splits = read(folder, store)
    assert sum(map(len, (splits.train, splits.validation, splits.test))) == 31
    (new,) = packed(store)
    assert new != old
    os.utime(folder / "blue" / "more.png", ns=(1, 1))
    read(folder, store)
    assert packed(store) != [new]


def test_other_options_have_another_cache(folder: Path, store: Path) -> None:
    assert read(folder, store, size=(16, 24)).spec.shape == (3, 16, 24)
    assert read(folder, store, size=12).spec.shape == (3, 12, 12)
    assert len(read(folder, store, test_fraction=0.5).test) == 15
    assert len(packed(store)) == 3
    assert read(folder, store, size=(16, 24)).spec.shape == (3, 16, 24)
    assert len(packed(store)) == 3


def test_a_damaged_cache_is_packed_again(folder: Path, store: Path) -> None:
    before = read(folder, store).test.x.clone()
    (cache,) = packed(store)
    for damage in ("images.npy", "labels.npy", "manifest.json"):
        content = (cache / damage).read_bytes()
        (cache / damage).write_bytes(content[: len(content) // 2])
        assert torch.equal(read(folder, store).test.x, before)


@pytest.mark.parametrize("damage", ["labels.npy", "images.npy"])
def test_zeroed_labels_and_pixels_are_noticed(damage: str, folder: Path, store: Path) -> None:
    """A cache is packed again; data that a person has packed is refused."""
    before = read(folder, store)
    x, y = before.train.x.clone(), before.train.y.clone()
    (cache,) = packed(store)
    array = np.load(cache / damage)
    np.save(cache / damage, np.zeros_like(array))
    with pytest.raises(UserError, match="have changed since they were packed"):
        packed_set.read_packed(cache)
    after = read(folder, store)
    assert torch.equal(after.train.x, x)
    assert torch.equal(after.train.y, y)


def test_a_cache_of_an_earlier_version_has_no_digest(folder: Path, store: Path) -> None:
    read(folder, store)
    (cache,) = packed(store)
    manifest = json.loads((cache / "manifest.json").read_text())
    assert manifest.pop("content")
    (cache / "manifest.json").write_text(json.dumps(manifest))
    assert len(packed_set.read_packed(cache).train)


def test_an_interrupt_leaves_nothing(folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def interrupted(image: Image, size: tuple[int, int], grey: bool) -> object:
        seen.append(size)
        if len(seen) == 9:
            raise KeyboardInterrupt
        return to_pixels(image, size, grey)

    with monkeypatch.context() as patch:
        patch.setattr("uiat.data.packing.to_pixels", interrupted)
        with pytest.raises(KeyboardInterrupt):
            read(folder, store)
    assert packed(store) == []
    assert len(read(folder, store).test) == 6


def test_what_a_killed_process_left_is_removed(folder: Path, store: Path) -> None:
    left = store / "packed" / ".packing-left"
    left.mkdir(parents=True)
    (left / "images.npy").write_bytes(b"half")
    read(folder, store)
    assert not left.exists()
    assert len(packed(store)) == 1


def test_a_process_that_is_killed_while_packing(folder: Path, store: Path) -> None:
    code = (
        "import os, signal, sys; from uiat.data import DataConfig, load_splits, packing\n"
        "real, seen = packing.to_pixels, []\n"
        "def killed(*args):\n"
        "    seen.append(args)\n"
        f"    return real(*args) if len(seen) < 9 else os.kill(os.getpid(), signal.SIGKILL)\n"
        "packing.to_pixels = killed\n"
        f"load_splits(DataConfig(name={str(folder)!r}), {str(store)!r})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == -9
    (left,) = packed(store)
    assert left.name.startswith(".packing-")
    assert len(read(folder, store).test) == 6
    (whole,) = packed(store)
    assert whole.name.startswith("mine-")


def test_a_full_disk_is_one_message(folder: Path, store: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        assert "cannot write the packed images to" in refused(folder, store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, before)
    assert len(read(folder, store).test) == 6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to measure memory")
def test_a_data_set_larger_than_what_is_read_of_it(tmp_path: Path) -> None:
    """A sparse pack of 300 MB trains on its first batches with a few megabytes of memory."""
    folder, count = tmp_path / "large", 100_000
    folder.mkdir()
    facts = Manifest("", "", {}, ["a", "b"], [3, 32, 32], count - 2048, 1024, 1024, False, False, [])
    (folder / "manifest.json").write_text(json.dumps(asdict(facts)))
    np.save(folder / "labels.npy", np.arange(count) % 2)
    with (folder / "images.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (count, 3, 32, 32)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + count * 3 * 32 * 32)
    before = resident()
    splits = load_splits(DataConfig(name=str(folder)))
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [count - 2048, 1024, 1024]
    loader = Loader(splits.train, 128, seed=0, crop=4, flip=True)
    for step, batch in loader.epoch(1):
        assert not batch.x.any()
        if step == 5:
            break
    assert resident() - before < 60e6


def resident() -> float:
    """Return the bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_store_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "packed").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write .*--data-dir"):
        read(folder, store)
