"""`uiat data info|pack|fetch`."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support import data_files as formats
from tests.support.calls import call, missing_facts, refused, refused_flag
from tests.support.data_files import CLASSES, fill, read
from uiat.data import DataConfig, load_splits


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "200")
    fill(tmp_path / "mine")
    return tmp_path


def test_info_of_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "data", "info", "mine", "--json", "info.json")
    assert found.code == 0
    facts = json.loads(Path("info.json").read_text(encoding="utf-8"))
    assert facts["classes"] == list(CLASSES)
    assert facts["shape"] == [3, 48, 64]
    assert {part: sum(row.values()) for part, row in facts["counts"].items()} == {
        "train": 22,
        "validation": 2,
        "test": 6,
    }
    assert facts["counts"]["test"] == dict.fromkeys(CLASSES, 2)
    assert facts["megabytes"] == 0.3
    assert Path(facts["where"]).parent == Path("store/packed").absolute()
    for fact in ("blue", "3 classes, 3 × 48 × 64", "pixels: 0.3 MB, read from the disk", facts["where"]):
        assert fact in found.out


def test_info_prints_a_note_once(capsys: pytest.CaptureFixture[str]) -> None:
    fill(Path("mixed"), {"blue": 8})
    fill(Path("mixed"), {"red": 8}, size=(40, 30))
    for _ in range(2):  # packed now, then read
        found = call(capsys, "data", "info", "mixed")
        assert (found.out + found.err).count("have 2 sizes") == 1


def test_info_of_known_data_and_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "data", "info", "digits")
    assert found.code == 0
    assert "10 classes, 1 × 8 × 8" in found.out
    assert "1295" in found.out
    np.savez("a.npz", image=formats.pixels(60, 8, 9), label=np.arange(60) % 30)
    found = call(capsys, "data", "info", "a.npz", "--test-fraction", "0.5")
    assert "… and 10 more" in found.out
    assert "held in memory" in found.out


def test_info_downloads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "CIFAR-10 is not in" in refused(capsys, "data", "info", "cifar10")
    assert missing_facts(refused(capsys, "data", "info", "cifar-10"), "cifar-10 cifar10") == []


def test_pack_to_a_folder_that_trains_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "data", "pack", "mine/", "--size", "24", "32")
    assert found.out == "packed; next: uiat train --data mine-packed\n"
    splits, same = load_splits(DataConfig(name="mine-packed")), read(Path("mine"), Path("store"), size=(24, 32))
    for part in ("train", "validation", "test"):
        one, other = getattr(splits, part), getattr(same, part)
        assert np.array_equal(one.x, other.x)
        assert np.array_equal(one.y, other.y)
    assert call(capsys, "data", "info", "mine-packed").code == 0
    assert "mine-packed exists" in refused(capsys, "data", "pack", "mine")
    assert "is packed already" in refused(capsys, "data", "pack", "mine-packed")


def test_pack_to_npz(capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "data", "pack", "mine", "--out", "all.npz")
    assert found.out == "packed; next: uiat train --data all.npz --data.test all-test.npz\n"
    splits = load_splits(DataConfig(name="all.npz", test="all-test.npz"))
    assert splits.test.classes == CLASSES
    assert np.array_equal(splits.test.x, read(Path("mine"), Path("store")).test.x)
    assert sorted(path.name for path in Path().iterdir() if path.name.startswith(".")) == []
    assert "all.npz exists" in refused(capsys, "data", "pack", "mine", "--out", "all.npz")
    Path("all.npz").unlink()
    assert "all-test.npz" in refused(capsys, "data", "pack", "mine", "--out", "all.npz")


def test_what_an_npz_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    fill(Path("split/train"))
    fill(Path("split/val"))
    message = refused(capsys, "data", "pack", "split", "--out", "b.npz")
    assert "which an .npz cannot hold" in message
    assert not Path("b.npz").exists()


def test_a_damaged_pack_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "data", "pack", "mine")
    path = Path("mine-packed/images.npy")
    path.write_bytes(path.read_bytes()[:-5])
    assert "mine-packed/images.npy" in refused(capsys, "data", "info", "mine-packed")
    Path("mine-packed/manifest.json").write_text("[]")
    assert "manifest" in refused(capsys, "data", "info", "mine-packed")


def test_invalid_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere" in refused(capsys, "data", "pack", "nowhere")
    assert "'info'" in refused(capsys, "data", "inof", "mine")
    assert "'cifar'" in refused(capsys, "data", "fetch", "cifar")
    assert "no/where.npz" in refused(capsys, "data", "pack", "mine", "--out", "no/where.npz")
    assert (
        missing_facts(refused(capsys, "data", "pack", "mine", "--test-fraction", "2"), "--data.test-fraction 2.0") == []
    )
    assert "--size" in refused_flag(capsys, "data", "pack", "mine", "--size", "x")


def test_fetch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = call(capsys, "data", "fetch", "digits")
    assert found.code == 0
    assert "10 classes" in found.out
    formats.cifar10(tmp_path / "store", True)
    found = call(capsys, "data", "fetch", "cifar10")
    assert found.code == 0
    assert "airplane" in found.out or "10 classes" in found.out
