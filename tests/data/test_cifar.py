"""CIFAR in both layouts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data import formats
from uiat.data import cifar
from uiat.data.images import Images
from uiat.errors import UserError

Load = Callable[[Path, bool], tuple[Images, Images]]


def same(one: Images, other: Images) -> bool:
    return torch.equal(one.x, other.x) and torch.equal(one.y, other.y) and one.classes == other.classes


@pytest.mark.parametrize("binary", [True, False])
def test_cifar10(tmp_path: Path, binary: bool) -> None:
    pixels, labels = formats.cifar10(tmp_path, binary)
    train, test = cifar.load10(tmp_path, False)
    assert len(train) == 100
    assert len(test) == 20
    assert train.classes == test.classes == tuple(formats.CIFAR10)
    both = torch.cat([train.x, test.x])
    assert torch.equal(both, torch.from_numpy(pixels).view(-1, 3, 32, 32))
    assert torch.cat([train.y, test.y]).tolist() == labels
    train.check("train")


@pytest.mark.parametrize("binary", [True, False])
def test_cifar100_uses_fine_labels(tmp_path: Path, binary: bool) -> None:
    pixels, labels = formats.cifar100(tmp_path, binary)
    train, test = cifar.load100(tmp_path, False)
    assert torch.cat([train.y, test.y]).tolist() == labels
    assert torch.equal(torch.cat([train.x, test.x]), torch.from_numpy(pixels).view(-1, 3, 32, 32))
    assert train.classes == tuple(formats.CIFAR100)
    test.check("test")


@pytest.mark.parametrize(("write", "load"), [(formats.cifar10, cifar.load10), (formats.cifar100, cifar.load100)])
def test_layouts_agree(tmp_path: Path, write: Callable[..., object], load: Load) -> None:
    write(tmp_path / "a", binary=True)
    write(tmp_path / "b", binary=False)
    for one, other in zip(load(tmp_path / "a", False), load(tmp_path / "b", False), strict=True):
        assert same(one, other)


def test_binary_is_preferred_and_a_broken_pickle_beside_it_is_not_touched(tmp_path: Path) -> None:
    formats.cifar10(tmp_path, True)
    formats.cifar10(tmp_path, False)
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"cos\nsystem\n.")
    assert len(cifar.load10(tmp_path, False)[0]) == 100


def test_data_folder_may_be_the_layout_itself(tmp_path: Path) -> None:
    formats.cifar10(tmp_path, False)
    assert len(cifar.load10(tmp_path / "cifar-10-batches-py", False)[0]) == 100


def test_incomplete_binary_gives_way_to_complete_pickles(tmp_path: Path) -> None:
    formats.cifar10(tmp_path, True)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(UserError, match=r"cifar-10-batches-bin lacks data_batch_3\.bin"):
        cifar.load10(tmp_path, True)
    formats.cifar10(tmp_path, False)
    assert len(cifar.load10(tmp_path, False)[0]) == 100


@pytest.mark.parametrize("keep", [0, 1, 3072, 3074, -1])
def test_truncated_binary(tmp_path: Path, keep: int) -> None:
    formats.cifar10(tmp_path, True)
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"data_batch_2\.bin has .* truncated"):
        cifar.load10(tmp_path, False)


def test_label_out_of_range_names_the_file(tmp_path: Path) -> None:
    formats.cifar10(tmp_path, True)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    with pytest.raises(UserError, match=r"test_batch\.bin has label 10, outside 0…9"):
        cifar.load10(tmp_path, False)


@pytest.mark.parametrize(
    "entry",
    [
        {b"labels": [1]},
        {b"data": formats.pixels(1, 3072)},
        {b"data": formats.pixels(2, 3072), b"labels": [1]},
        {b"data": formats.pixels(1, 3071), b"labels": [1]},
        {b"data": formats.pixels(0, 3072), b"labels": []},
        {b"data": b"x" * 3072, b"labels": [1]},
        {b"data": formats.pixels(1, 3072), b"labels": [b"1"]},
        {b"data": formats.pixels(1, 3072), b"labels": 1},
        {b"data": formats.pixels(1, 3072), b"labels": b"\x01"},
        {b"data": formats.pixels(1, 3072), b"labels": [-1]},
        {b"data": formats.pixels(1, 3072), b"labels": [10]},
    ],
)
def test_odd_pickled_batches(tmp_path: Path, entry: dict[bytes, object]) -> None:
    formats.cifar10(tmp_path, False)
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").write_bytes(formats.python2(entry))
    with pytest.raises(UserError, match="data_batch_4") as caught:
        cifar.load10(tmp_path, False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("names", ["", "one two", "\n".join(map(str, range(11)))])
def test_wrong_number_of_names(tmp_path: Path, names: str) -> None:
    formats.cifar10(tmp_path, True)
    (tmp_path / "cifar-10-batches-bin" / "batches.meta.txt").write_text(names)
    with pytest.raises(UserError, match=r"batches\.meta\.txt has \d+ class names instead of 10"):
        cifar.load10(tmp_path, False)


def test_names_that_are_not_text(tmp_path: Path) -> None:
    formats.cifar10(tmp_path, True)
    (tmp_path / "cifar-10-batches-bin" / "batches.meta.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(UserError, match=r"batches\.meta\.txt cannot be read"):
        cifar.load10(tmp_path, False)


@pytest.mark.parametrize("load", [cifar.load10, cifar.load100])
def test_missing_without_download_leaves_nothing(tmp_path: Path, load: Load) -> None:
    data = tmp_path / "data"
    with pytest.raises(UserError, match=r"is not in .*data: put its folder cifar-.* --data-dir"):
        load(data, False)
    assert not data.exists()


def test_result_owns_its_memory(tmp_path: Path) -> None:
    formats.cifar10(tmp_path, False)
    train, _ = cifar.load10(tmp_path, False)
    train.x.zero_()  # would fault or warn on a read-only buffer
    assert train.x.is_contiguous()
    assert np.asarray(train.x).sum() == 0
