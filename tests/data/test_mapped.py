"""Arrays in .npz files, mapped in place or unpacked once."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.sparse import sparse_npz
from uiat.data import mapped
from uiat.data.mapped import map_array
from uiat.errors import UserError
from uiat.progress import Ticker


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mapped, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "unpacked"


def arrays(count: int = 20) -> dict[str, Any]:
    g = np.random.default_rng(0)
    return {"image": g.integers(0, 256, (count, 8, 9, 3), dtype=np.uint8), "label": np.arange(count) % 3}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_bytes(save: Any, tmp_path: Path, cache: Path) -> None:
    save(tmp_path / "a.npz", **arrays())
    found = map_array(tmp_path / "a.npz", "image")
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, arrays()["image"])
    assert cache.exists() == (save is np.savez_compressed)
    before = (tmp_path / "a.npz").read_bytes()
    found[0] = 7  # goes nowhere
    assert (tmp_path / "a.npz").read_bytes() == before


@settings(max_examples=25)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    dtype=st.sampled_from(["u1", "<i4", "<f8", "?"]),
    fortran=st.booleans(),
    names=st.lists(st.text("abcé_ ", min_size=1, max_size=12), max_size=2, unique=True),
)
def test_any_array_at_any_place(
    shape: list[int], dtype: str, fortran: bool, names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.npz"
    array = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)
    array = np.asfortranarray(array) if fortran else array
    np.savez(path, **{name: np.ones(3) for name in names if name != "it"}, it=array)  # type: ignore[arg-type]
    np.testing.assert_array_equal(map_array(path, "it"), array)


def test_unpacking_happens_once_and_is_named_after_the_content(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", **arrays())
    calls = []
    write = mapped._write

    def counted(*args: Any) -> None:
        calls.append(1)
        write(*args)

    monkeypatch.setattr(mapped, "_write", counted)
    first = np.array(map_array(tmp_path / "a.npz", "image"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.npz").rename(tmp_path / "elsewhere" / "a.npz")
    np.testing.assert_array_equal(map_array(tmp_path / "elsewhere" / "a.npz", "image"), first)
    assert len(calls) == 1
    np.savez_compressed(tmp_path / "a.npz", **arrays(21))  # another content under the same name
    assert len(map_array(tmp_path / "a.npz", "image")) == 21
    assert len(calls) == 2
    copy = next(cache.glob("a-image-*.npy"))
    copy.write_bytes(copy.read_bytes()[:-1])  # what is cut short is made again
    for count in (20, 21):
        np.savez_compressed(tmp_path / "a.npz", **arrays(count))
        np.testing.assert_array_equal(map_array(tmp_path / "a.npz", "image"), arrays(count)["image"])
    assert len(calls) == 3


def test_an_interrupted_unpacking_leaves_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", **arrays())
    with monkeypatch.context() as patch:
        patch.setattr(Ticker, "advance", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            map_array(tmp_path / "a.npz", "image")
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []
    np.testing.assert_array_equal(map_array(tmp_path / "a.npz", "image"), arrays()["image"])


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", **arrays())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped, "_write", full)
    with pytest.raises(UserError, match=r"cannot unpack .*a\.npz to .* make room for 0\.0 GB, or save the file unc"):
        map_array(tmp_path / "a.npz", "image")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flip_local_header(path: Path) -> None:
    path.write_bytes(b"XX" + path.read_bytes()[2:])


def flip_packed(path: Path) -> None:
    np.savez_compressed(path, **arrays())
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    path.write_bytes(content)


def shorter_than_it_says(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        image, label = archive.read("image.npy"), archive.read("label.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("image.npy", image[:-1])
        archive.writestr("label.npy", label)


def objects(path: Path) -> None:
    np.savez(path, image=np.array([{}], dtype=object))


def no_archive(path: Path) -> None:
    path.write_bytes(b"hello")


DAMAGES = [cut, flip_local_header, flip_packed, shorter_than_it_says, objects, no_archive]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_sentence(damage: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays())
    damage(tmp_path / "a.npz")
    with pytest.raises(UserError, match=r"a\.npz cannot be read as an \.npz file \(.*\): replace it"):
        map_array(tmp_path / "a.npz", "image")


def test_an_array_that_is_not_there(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", pictures=np.zeros(3))
    with pytest.raises(UserError, match="has no array `image`"):
        map_array(tmp_path / "a.npz", "image")


def test_a_hole_is_zeros(tmp_path: Path) -> None:
    path = sparse_npz(tmp_path / "a.npz", 1000)
    found = map_array(path, "image")
    assert found.shape == (1000, 32, 32, 3)
    assert not found[::100].any()
    assert path.stat().st_blocks * 512 < 200_000 < path.stat().st_size
