"""Data files that claim, or unpack to, far more than they are: one message, in bounded memory and time.

Each is read in a child whose address space may grow by 300 MB only.
"""

import gzip
import io
import os
import pickle
import resource
import struct
import sys
import traceback
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support import data_files as formats
from uiat.data import cifar, grey, npz, svhn
from uiat.errors import UserError

ROOM = 300 << 20
ZEROS = bytes(1 << 24)


def refusal(read: Callable[[], object], tmp_path: Path) -> str:
    """Return the error message of `read` in a child with little memory, which is killed after a minute."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
            try:
                read()
            except UserError as error:
                (tmp_path / "message").write_text(str(error), encoding="utf-8")
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    message = (tmp_path / "message").read_text(encoding="utf-8")
    assert "MemoryError" not in message
    return message


if not Path("/proc/self/statm").exists():
    pytest.skip("a limit of the address space needs Linux", allow_module_level=True)


def nested(levels: int) -> bytes:
    """Return a tuple of the same tuple twice, and so on: its hash takes 2 ** levels steps."""
    inner = b"".join(b"h" + bytes([k]) + b"h" + bytes([k]) + b"\x86q" + bytes([k + 1]) for k in range(levels))
    return b"\x80\x02}(K\x01K\x01\x86q\x00" + inner + b"K\x01u."


def colliding(k: int) -> bytes:
    """Return an integer with the hash 0, and None: 100,000 such keys of a dictionary take minutes."""
    return b"\x8a\x10" + (k * ((1 << 61) - 1)).to_bytes(16, "little") + b"N"


BIG = 1 << 62
PICKLES = {
    "nested twice": nested(60),
    "copied": b"\x80\x02}(K\x01" + b"2\x86" * 60 + b"K\x01u.",
    "a list in itself": b"\x80\x02}U\x06labels]q\x00(h\x00h\x00es.",
    "a place of 2.9 GB": b"\x80\x02}r" + struct.pack("<I", 2_900_000_000 // 16) + b".",
    "a place as text": b"\x80\x02}p182000000\n.",
    "deep": b"\x80\x02}(K\x01" + b"\x85" * 1_000_000 + b"K\x01u.",
    "many": b"\x80\x02(" + b"N" * 3_000_000 + b"t.",
    "many lists": b"\x80\x02(" + b"]" * 1_000_000 + b"t.",
    "keys that collide": b"\x80\x04}(" + b"".join(map(colliding, range(1 << 40, (1 << 40) + 99_999))) + b"u.",
    "text that is not there": b"\x80\x04}\x8e" + struct.pack("<Q", BIG) + b".",
    "a frame that is not there": b"\x80\x04\x95" + struct.pack("<Q", BIG) + b"}.",
    "a buffer": b"\x80\x05\x96" + struct.pack("<Q", BIG) + b".",
    "an array of 8 GB": formats.python2({b"labels": [1]})[:-1]
    + b"U\x04data"
    + formats.array(b"x", (2_700_000, 3072))
    + b"s.",
}


@pytest.mark.parametrize("content", PICKLES.values(), ids=PICKLES)
def test_pickles(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    assert str(path) in refusal(lambda: cifar.unpickle(path), tmp_path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_names_in_two_places_are_read(protocol: int, tmp_path: Path) -> None:
    """Pickles number strings and refer to them."""
    name = "a" * 300
    value = {"names": [name, name], "other": name, "labels": [1, 2, 300, 70_000, -1]}
    (tmp_path / "meta").write_bytes(pickle.dumps(value, protocol))
    assert cifar.unpickle(tmp_path / "meta") == value


def matlab(name: bytes, shape: tuple[int, ...], numbers: int) -> bytes:
    """Return a packed array of zeros, in steps."""
    parts = [(6, struct.pack("<II", 9, 0)), (5, struct.pack(f"<{len(shape)}i", *shape)), (1, name)]
    head = b"".join(struct.pack("<II", k, len(d)) + d + bytes(-len(d) % 8) for k, d in parts)
    head += struct.pack("<II", 2, numbers)
    packer = zlib.compressobj(1)
    packed = [packer.compress(struct.pack("<II", 14, min(len(head) + numbers, (1 << 32) - 8)) + head)]
    packed += [packer.compress(ZEROS) for _ in range(numbers >> 24)]
    body = b"".join([*packed, packer.flush()])
    return b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(body)) + body


def sized(shape: tuple[int, ...], dtype: str, numbers: int) -> bytes:
    """Return an .npy of zeros with such a header."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(numbers)


def archive(path: Path, image: bytes, repeat: int = 0, label: bytes = b"") -> Path:
    label = label or sized((2,), "<i8", 16)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        with file.open("image.npy", "w", force_zip64=True) as member:
            member.write(image)
            for _ in range(repeat):
                member.write(ZEROS)
        file.writestr("label.npy", label)
    return path


def test_matlab_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svhn, "MAX_FILE_BYTES", 1 << 26)
    path = tmp_path / "train_32x32.mat"
    for shape in ((32, 32, 3, 2_700_000), (32, 32, 3, 2), (1 << 20, 1 << 20, 1 << 20), (1, 1 << 25)):
        path.write_bytes(matlab(b"X", shape, 1 << 25))
        assert str(path) in refusal(lambda: svhn._read(path), tmp_path)


@pytest.mark.parametrize(
    ("claimed", "zeros"), [(1 << 32, 0), (2, 24), (100, 0)], ids=["claims 3 TB", "has more", "has less"]
)
def test_packed_idx(claimed: int, zeros: int, tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(bytes([0, 0, 8, 3]) + struct.pack(">3I", claimed - 1, 28, 28))
        for _ in range(zeros):
            file.write(ZEROS)
    assert str(path) in refusal(lambda: grey._idx(path, 3), tmp_path)


@pytest.mark.parametrize("case", ["image grows", "shape beyond the file", "file beyond the shape", "text"])
@pytest.mark.parametrize("mapped", [False, True])
def test_npz(case: str, mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    monkeypatch.setattr(npz, "MAX_FILE_BYTES", 1 << 26)
    if case == "image grows":
        archive(path, sized((5, 1 << 10, 1 << 14, 1), "|u1", 0), 5)
    elif case == "shape beyond the file":
        archive(path, sized((1 << 10, 1 << 10, 1 << 10, 3), "|u1", 8))
    elif case == "file beyond the shape":
        archive(path, sized((2, 8, 8, 1), "|u1", 128), 3)
    else:
        archive(path, sized((2, 8, 8, 1), "|u1", 128), label=sized((2,), f"<U{1 << 28}", 16))
    store = tmp_path / "store"
    message = refusal(lambda: npz.mapped(path, store) if mapped else npz.read_npz(path), tmp_path)
    assert str(path) in message
    assert not store.exists()
