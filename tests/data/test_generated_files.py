"""Files of generated images: unpacked once, mapped from the disk, and one error message where they are damaged."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uiat.data import npz
from uiat.data.npz import mapped
from uiat.errors import UserError
from uiat.progress import Ticker


def arrays(count: int = 20) -> dict[str, Any]:
    g = np.random.default_rng(0)
    return {"image": g.integers(0, 256, (count, 8, 9, 3), dtype=np.uint8), "label": np.arange(count) % 3}


def copies(store: Path) -> list[Path]:
    return sorted(store.iterdir()) if store.exists() else []


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_bytes(save: Any, tmp_path: Path, store: Path) -> None:
    save(tmp_path / "a.npz", **arrays())
    image, label = mapped(tmp_path / "a.npz", store)
    assert isinstance(image, np.memmap)
    np.testing.assert_array_equal(image, arrays()["image"])
    np.testing.assert_array_equal(label, arrays()["label"])
    before = (tmp_path / "a.npz").read_bytes()
    image[0] = 7  # leads nowhere
    assert (tmp_path / "a.npz").read_bytes() == before
    np.testing.assert_array_equal(mapped(tmp_path / "a.npz", store)[0], arrays()["image"])


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
    folder = tmp_path_factory.mktemp("any")
    array = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)
    array = np.asfortranarray(array) if fortran else array
    others = {name: np.ones(3) for name in names}
    np.savez(folder / "a.npz", **others, image=array, label=np.ones(2))  # type: ignore[arg-type]
    np.testing.assert_array_equal(mapped(folder / "a.npz", folder / "store")[0], array)


def test_unpacking_happens_once_and_is_named_after_the_content(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", **arrays())
    calls = []
    unpack = npz._unpack

    def counted(*args: Any) -> None:
        calls.append(1)
        unpack(*args)

    monkeypatch.setattr(npz, "_unpack", counted)
    first = np.array(mapped(tmp_path / "a.npz", store)[0])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.npz").rename(tmp_path / "elsewhere" / "a.npz")
    np.testing.assert_array_equal(mapped(tmp_path / "elsewhere" / "a.npz", store)[0], first)
    assert len(calls) == 1
    np.savez_compressed(tmp_path / "a.npz", **arrays(21))  # another content under the same name
    assert len(mapped(tmp_path / "a.npz", store)[0]) == 21
    assert len(calls) == 2
    copy = copies(store)[0] / "image.npy"
    copy.write_bytes(copy.read_bytes()[:-1])  # a truncated file is unpacked again
    for count in (20, 21):
        np.savez_compressed(tmp_path / "a.npz", **arrays(count))
        np.testing.assert_array_equal(mapped(tmp_path / "a.npz", store)[0], arrays(count)["image"])
    assert len(calls) == 3


def test_an_interrupted_unpacking_leaves_nothing(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", **arrays())
    with monkeypatch.context() as patch:
        patch.setattr(Ticker, "advance", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            mapped(tmp_path / "a.npz", store)
    assert copies(store) == []
    np.testing.assert_array_equal(mapped(tmp_path / "a.npz", store)[0], arrays()["image"])


def test_what_a_killed_process_left_is_removed(tmp_path: Path, store: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays())
    code = (
        "import os, signal; from pathlib import Path\n"
        "from uiat.data.npz import mapped; from uiat.progress import Ticker\n"
        "Ticker.advance = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"mapped(Path({str(tmp_path / 'a.npz')!r}), Path({str(store)!r}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == -9
    (left,) = copies(store)
    np.testing.assert_array_equal(mapped(tmp_path / "a.npz", store)[0], arrays()["image"])
    assert not left.exists()
    assert len(copies(store)) == 1


def test_no_room(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", **arrays())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Ticker, "advance", full)
    with pytest.raises(UserError, match=r"a\.npz .*store .*No space left on device"):
        mapped(tmp_path / "a.npz", store)
    assert copies(store) == []


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flip_local_header(path: Path) -> None:
    path.write_bytes(b"XX" + path.read_bytes()[2:])


def flip_packed(path: Path) -> None:
    np.savez_compressed(path, **arrays())
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    path.write_bytes(content)


def flip_stored(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[400] ^= 255
    path.write_bytes(content)


def shorter_than_it_says(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        image, label = archive.read("image.npy"), archive.read("label.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("image.npy", image[:-1])
        archive.writestr("label.npy", label)


def objects(path: Path) -> None:
    np.savez(path, image=np.array([{}], dtype=object), label=np.arange(1))


def no_archive(path: Path) -> None:
    path.write_bytes(b"hello")


DAMAGES = [cut, flip_local_header, flip_packed, flip_stored, shorter_than_it_says, objects, no_archive]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_message(damage: Any, tmp_path: Path, store: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays())
    damage(tmp_path / "a.npz")
    with pytest.raises(UserError, match=r"a\.npz .*\(.*\)"):
        mapped(tmp_path / "a.npz", store)
    assert copies(store) == []


@pytest.mark.parametrize("missing", ["image", "label"])
def test_an_array_that_is_not_there(missing: str, tmp_path: Path, store: Path) -> None:
    np.savez(tmp_path / "a.npz", **{name: array for name, array in arrays().items() if name != missing})
    with pytest.raises(UserError, match=f"has no array `{missing}`"):
        mapped(tmp_path / "a.npz", store)
