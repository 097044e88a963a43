"""Custom data in .npz files."""

import contextlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.data_files import pixels
from uiat.data import npz
from uiat.data.custom import split_npz
from uiat.errors import UserError

N = 20
LABEL = np.arange(N) % 4


def save(path: Path, **changes: object) -> Path:
    content = {"image": pixels(N, 8, 9, 3), "label": LABEL} | changes
    arrays: dict[str, Any] = {key: np.asarray(value) for key, value in content.items() if value is not None}
    np.savez(path, **arrays)
    return path


def fails(path: Path, match: str, *classes: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        npz.read_npz(path, classes or None)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("channels", [1, 3])
def test_orders_of_axes_agree(tmp_path: Path, channels: int) -> None:
    image = pixels(N, 8, 9, channels)
    want = torch.from_numpy(image).permute(0, 3, 1, 2)
    assert torch.equal(npz.read_npz(save(tmp_path / "a.npz", image=image)).x, want)
    assert torch.equal(npz.read_npz(save(tmp_path / "b.npz", image=image.transpose(0, 3, 1, 2))).x, want)
    if channels == 1:
        assert torch.equal(npz.read_npz(save(tmp_path / "c.npz", image=image[..., 0])).x, want)


def test_last_axis_is_preferred(tmp_path: Path) -> None:
    assert npz.read_npz(save(tmp_path / "a.npz", image=pixels(N, 3, 9, 3))).x.shape == (N, 3, 3, 9)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
def test_floats_become_the_bytes_they_came_from(tmp_path: Path, dtype: str) -> None:
    image = np.broadcast_to(np.arange(256, dtype=np.uint8).reshape(16, 16), (N, 16, 16))
    read = npz.read_npz(save(tmp_path / "a.npz", image=(image / 255).astype(dtype)))
    assert torch.equal(read.x[:, 0], torch.from_numpy(image.copy()))


@pytest.mark.parametrize("dtype", ["u1", "i2", ">i4", "i8", "u8"])
def test_labels_of_any_integer_type(tmp_path: Path, dtype: str) -> None:
    read = npz.read_npz(save(tmp_path / "a.npz", label=LABEL.astype(dtype)))
    assert read.y.dtype == torch.int64
    assert read.y.tolist() == LABEL.tolist()
    assert read.classes == ("0", "1", "2", "3")


def test_names(tmp_path: Path) -> None:
    names = ["ä", "b", "c", "d", "never seen"]
    assert npz.read_npz(save(tmp_path / "a.npz", classes=names)).classes == tuple(names)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"image": None}, "no array `image`"),
        ({"label": None}, "no array `label`"),
        ({"image": pixels(N, 8, 9, 4)}, "1 or 3 channels"),
        ({"image": pixels(N, 8)}, "has shape"),
        ({"image": np.uint8(3)}, "has shape"),
        ({"image": pixels(N, 2, 8, 9, 3)}, "has shape"),
        ({"image": pixels(0, 8, 9, 3), "label": LABEL[:0]}, "has no images"),
        ({"image": pixels(N, 8, 9, 3).astype(np.int64)}, "is int64: give uint8"),
        ({"image": pixels(N, 8, 9, 3).astype(complex)}, "complex"),
        ({"image": pixels(N, 8, 9, 3) > 9}, "is bool"),
        ({"image": np.full((N, 8, 8), "a")}, "<U1"),
        ({"image": np.full((N, 8, 8), np.nan)}, "NaN"),
        ({"image": np.full((N, 8, 8), 1.01)}, "pixel value 1.01, outside 0 to 1"),
        ({"image": np.full((N, 8, 8), -0.01)}, "pixel value -0.01"),
        ({"image": np.full((N, 8, 8), np.inf)}, "pixel value inf"),
        ({"image": pixels(N, 8, 8).astype(np.float32)}, "outside 0 to 1: scale"),
        ({"label": LABEL[:-1]}, "one label per image"),
        ({"label": LABEL[:, None]}, "one label per image"),
        ({"label": 3}, "one label per image"),
        ({"label": LABEL.astype(float)}, "is float64: give integers"),
        ({"label": LABEL > 1}, "is bool"),
        ({"label": LABEL.astype(str)}, "give integers"),
        ({"label": LABEL - 1}, "has label -1"),
        ({"label": LABEL + 10**12}, "has label 1000000000003"),
        ({"label": LABEL.astype(np.uint64) + np.uint64(2**63)}, "has label 9223372036854775811"),
        ({"classes": ["a", "b", "c"]}, "label 3, but the training data has 3 classes"),
        ({"classes": [1, 2, 3, 4]}, "`classes`"),
        ({"classes": [["a", "b", "c", "d"]]}, "`classes`"),
        ({"classes": np.array([], str)}, "`classes`"),
        ({"classes": np.array(["a", None], object)}, "cannot be read"),
        ({"image": np.array([None] * N, object)}, "cannot be read"),
    ],
)
def test_wrong_content(tmp_path: Path, changes: dict[str, object], match: str) -> None:
    fails(save(tmp_path / "own.npz", **changes), match)


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            import os

            return os.system, (f"touch {tmp_path / 'ran'}",)

    image = np.empty(N, object)
    image[:] = [Harmful() for _ in range(N)]
    fails(save(tmp_path / "own.npz", image=image), "cannot be read")
    assert not (tmp_path / "ran").exists()


def test_missing_file_and_folder(tmp_path: Path) -> None:
    fails(tmp_path / "none.npz", "there is no file")
    (tmp_path / "dir.npz").mkdir()
    fails(tmp_path / "dir.npz", "there is no file")
    fails(tmp_path / ("x" * 5000 + ".npz"), "there is no file")


def test_not_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for content in (b"", b"PK", b"PK\x03\x04junk", b"\x93NUMPY\x01\x00", b"text", b"cos\nsystem\n."):
        path.write_bytes(content)
        fails(path, "cannot be read")
    with path.open("wb") as file:
        np.save(file, LABEL)
    fails(path, "single array")


def test_truncated_or_flipped_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, image=pixels(N, 8, 8), label=LABEL)
    whole = path.read_bytes()
    for at in range(0, len(whole), 17):
        path.write_bytes(whole[:at])
        fails(path, "a.npz")
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with contextlib.suppress(UserError):  # a flip in an unused field of the zip does no harm
            npz.read_npz(path)


def test_header_that_asks_for_petabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("image.npy", "label.npy"):
            with file.open(name, "w") as member:
                np.lib.format.write_array_header_1_0(
                    member, {"descr": "|u1", "fortran_order": False, "shape": (2**50, 8, 8)}
                )
    fails(path, "cannot be read")


def test_held_out_fifth_is_stratified_and_fixed(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz")
    train, test = split_npz(path, None)
    assert train.y.bincount().tolist() == [4] * 4
    assert test.y.bincount().tolist() == [1] * 4
    assert torch.equal(test.x, split_npz(path, None)[1].x)


def test_test_file_takes_the_classes_of_training(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    plain, named = save(tmp_path / "a.npz"), save(tmp_path / "b.npz", classes=names)
    few = save(tmp_path / "few.npz", label=LABEL % 2)
    assert split_npz(named, few)[1].classes == tuple(names)
    assert split_npz(named, named)[1].classes == tuple(names)
    assert split_npz(plain, few)[1].classes == ("0", "1", "2", "3")
    with pytest.raises(UserError, match=r"a\.npz has label 3, but the training data has 2 classes"):
        split_npz(few, plain)
    other = save(tmp_path / "other.npz", classes=names[::-1])
    with pytest.raises(UserError, match=r"other\.npz has other `classes`"):
        split_npz(named, other)
