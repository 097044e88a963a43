"""CIFAR in both layouts; malicious and malformed pickles, which are refused by name and never executed."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support import data_files as formats
from uiat.data import cifar
from uiat.data.cifar import unpickle
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


@pytest.mark.parametrize("binary", [True, False])
def test_cifar100_has_coarse_labels_too(tmp_path: Path, binary: bool) -> None:
    pixels, labels = formats.cifar100(tmp_path, binary)
    train, test = cifar.load100_coarse(tmp_path, False)
    assert torch.cat([train.y, test.y]).tolist() == [19 - label % 20 for label in labels]
    assert torch.equal(torch.cat([train.x, test.x]), torch.from_numpy(pixels).view(-1, 3, 32, 32))
    assert train.classes == test.classes == tuple(formats.COARSE)


@pytest.mark.parametrize(
    ("write", "load"),
    [
        (formats.cifar10, cifar.load10),
        (formats.cifar100, cifar.load100),
        (formats.cifar100, cifar.load100_coarse),
    ],
)
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


@pytest.mark.parametrize("load", [cifar.load10, cifar.load100, cifar.load100_coarse])
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


def unpickled(tmp_path: Path, content: bytes) -> dict[str, object]:
    path = tmp_path / "batch"
    path.write_bytes(content)
    return unpickle(path)


def refused(tmp_path: Path, content: bytes, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        unpickled(tmp_path, content)
    assert str(tmp_path / "batch") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_python2_pickle_is_read(tmp_path: Path) -> None:
    entry = {b"data": formats.pixels(3, 3072), b"labels": [0, 1, 300], b"name": b"x" * 300}
    got = unpickled(tmp_path, formats.python2(entry))
    assert list(got) == ["data", "labels", "name"]
    np.testing.assert_array_equal(np.asarray(got["data"]), entry[b"data"])
    assert got["labels"] == [0, 1, 300]
    assert got["name"] == b"x" * 300


@pytest.mark.parametrize("protocol", [3, 4])
def test_pickle_of_todays_numpy_is_read(tmp_path: Path, protocol: int) -> None:
    data = formats.pixels(3, 5)
    got = unpickled(tmp_path, pickle.dumps({"data": data, "labels": [1, 2]}, protocol))
    np.testing.assert_array_equal(np.asarray(got["data"]), data)


def test_new_module_name_is_read(tmp_path: Path) -> None:
    got = unpickled(tmp_path, b"\x80\x02}U\x01d" + formats.array(b"abc", (3,), module=b"numpy._core") + b"s.")
    np.testing.assert_array_equal(np.asarray(got["d"]), [97, 98, 99])


class Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
def test_code_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    refused(tmp_path, pickle.dumps({"data": Harmful(mark)}, protocol), r"(posix|nt)\.system")
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "builtins\neval",
        "__builtin__\neval",
        "os\nsystem",
        "numpy\nload",
        "numpy\nfromfile",
        "numpy.core.multiarray\nscalar",
        "numpy.testing\nrunstring",
        "copyreg\n_reconstructor",
        "numpy\nndarray.tofile",
    ],
)
def test_other_globals_are_refused_by_name(tmp_path: Path, name: str) -> None:
    refused(tmp_path, f"c{name}\n(S'1'\ntR.".encode(), name.replace("\n", r"\."))


def test_dotted_name_of_protocol_4_is_refused(tmp_path: Path) -> None:
    stack_global = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    refused(tmp_path, stack_global, r"numpy\.ndarray\.tofile")


@pytest.mark.parametrize("code", [b"O8", b"V8", b"i8", b"f8", b"O", b"u1,O"])
def test_arrays_of_anything_but_bytes_are_refused(tmp_path: Path, code: bytes) -> None:
    element = formats.dtype(code)
    refused(tmp_path, b"\x80\x02}U\x01d" + formats.array(b"\0" * 8, (1,), element) + b"s.", "only bytes")


def test_state_cannot_change_the_byte_type(tmp_path: Path) -> None:
    hostile = formats.dtype(tail=b"NNNK\x08K\x08K\x3f")  # item size 8 and every flag, object pointers included
    got = unpickled(tmp_path, b"\x80\x02}U\x01d" + formats.array(b"\1\2\3", (3,), hostile) + b"s.")
    assert np.asarray(got["d"]).dtype == np.dtype("u1") == np.dtype(np.uint8)
    assert np.dtype("u1").itemsize == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80",
        b"garbage",
        b"\x80\x02.",
        formats.python2([1, 2]),
        formats.python2({b"a": 1})[:-1],
        b"\x80\x02}U\x01d" + formats.array(b"abc", (4,)) + b"s.",
        b"\x80\x02}U\x01d" + formats.array(b"abc", (2**31 - 1,) * 4) + b"s.",
        b"\x80\x02cnumpy\nndarray\n(K\x05tR.",
        b"\x80\x02cnumpy\nndarray\n)\x81.",
        b"\x80\x02cnumpy\ndtype\n)R.",
        b"\x80\x02cnumpy\ndtype\nK\x05\x85R.",
        b"\x80\x02U\x03pidQ.",
        b"\x80\x63}.",
        b"\x80\x02}U\x02\xff\xfeK\x01s.",
    ],
)
def test_damage_is_one_message(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path, content, "batch")


def test_every_truncation_is_one_message(tmp_path: Path) -> None:
    content = formats.python2({b"data": formats.pixels(1, 12), b"labels": [1]})
    for end in range(len(content)):
        refused(tmp_path, content[:end], "batch")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing_here"):
        unpickle(tmp_path / "nothing_here")
