"""Downloads from a real server on this machine."""

import gzip
import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import data_files as formats
from uiat.data import cifar, fetch, grey, svhn
from uiat.data.fetch import OFFICIAL, Remote, data_folder
from uiat.errors import UserError

ARCHIVE = "cifar-10-binary.tar.gz"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Breaks(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(b"a little, and then the line is cut")

    def log_message(self, format: str, *args: object) -> None:
        pass


class Site:
    """A folder that is served, and the table of official files pointed at it."""

    def __init__(self, root: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.url, self.monkeypatch = root, url, monkeypatch

    def offer(self, name: str, content: bytes, sha256: str = "") -> None:
        (self.root / name).write_bytes(content)
        sha256 = sha256 or hashlib.sha256(content).hexdigest()
        self.monkeypatch.setitem(OFFICIAL, name, Remote(f"{self.url}/{name}", sha256))


def serve(handler: type[BaseHTTPRequestHandler] | partial[Quiet]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(grey, "_SYSTEM", tmp_path / "system")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    root = tmp_path / "site"
    root.mkdir()
    for url in serve(partial(Quiet, directory=str(root))):
        yield Site(root, url, monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "new" / "data"


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as file:
        for info, content in members:
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def cifar_archive(tmp_path: Path) -> bytes:
    formats.cifar10(tmp_path / "made", True)
    folder = tmp_path / "made" / "cifar-10-batches-bin"
    return tar(*((tarfile.TarInfo(f"{folder.name}/{path.name}"), path.read_bytes()) for path in folder.iterdir()))


def test_archive_is_fetched_once_and_nothing_is_left_over(
    tmp_path: Path, site: Site, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    site.offer(ARCHIVE, cifar_archive(tmp_path))
    train, test = cifar.load10(data, True)
    assert (len(train), len(test)) == (100, 20)
    assert [path.name for path in data.iterdir()] == ["cifar-10-batches-bin"]
    shown = capfd.readouterr()
    assert "100%" in shown.err
    assert not shown.out
    (site.root / ARCHIVE).unlink()
    assert len(cifar.load10(data, True)[0]) == 100


def test_files_are_fetched_and_only_those_that_lack(site: Site, data: Path) -> None:
    for name, content in formats.fashion().items():
        site.offer(f"{name}.gz", gzip.compress(content))
    own = data / "fashion-mnist"
    own.mkdir(parents=True)
    kept = formats.fashion()["train-labels-idx1-ubyte"]
    (own / "train-labels-idx1-ubyte").write_bytes(kept)
    train, _ = grey.load_fashion(data, True)
    assert len(train) == 20
    assert sorted(path.name for path in own.iterdir()) == [
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte",
    ]
    assert (own / "t10k-images-idx3-ubyte.gz").stat().st_mode & 0o777 == 0o644


def test_wrong_digest_is_discarded(tmp_path: Path, site: Site, data: Path) -> None:
    sha256 = "0" * 64
    site.offer(ARCHIVE, cifar_archive(tmp_path), sha256)
    with pytest.raises(UserError, match=rf"{sha256}.* was discarded: put .* into .*data, .*--data-dir"):
        cifar.load10(data, True)
    assert not list(data.iterdir())
    site.offer("train_32x32.mat", b"x", sha256)
    with pytest.raises(UserError, match="digest"):
        svhn.load_svhn(data, True)
    assert not list((data / "svhn").iterdir())


def test_no_network(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x"
        monkeypatch.setitem(OFFICIAL, ARCHIVE, Remote(url, "0"))
        with pytest.raises(UserError, match=r"CIFAR-10 is not in .*data and http.* did not send it .*--data-dir"):
            cifar.load10(data, True)
    assert not list(data.iterdir())


def test_not_found(site: Site, data: Path) -> None:
    site.offer("train_32x32.mat", b"x")
    (site.root / "train_32x32.mat").unlink()
    with pytest.raises(UserError, match=r"did not send it \(HTTPError: 404") as caught:
        svhn.load_svhn(data, True)
    assert "\n" not in str(caught.value)


def test_line_cut_in_the_middle(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    for url in serve(Breaks):
        monkeypatch.setitem(OFFICIAL, ARCHIVE, Remote(f"{url}/x", "0"))
        with pytest.raises(UserError, match="CIFAR-10 is not in"):
            cifar.load10(data, True)
    assert not list(data.iterdir())


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../x"),
        tarfile.TarInfo("cifar-10-batches-bin/../../../x"),
        link("cifar-10-batches-bin/out", "/etc"),
        link("cifar-10-batches-bin/out", "../../.."),
        link("cifar-10-batches-bin/out", "../../../secret", tarfile.LNKTYPE),
        link("cifar-10-batches-bin/dev", "", tarfile.CHRTYPE),
    ],
)
def test_archive_that_tries_to_escape(site: Site, data: Path, member: tarfile.TarInfo) -> None:
    data.mkdir(parents=True)
    (data / "secret").write_text("kept")
    content = b"" if member.type != tarfile.REGTYPE else b"escaped"
    site.offer(ARCHIVE, tar((tarfile.TarInfo("cifar-10-batches-bin/a"), b"a"), (member, content)))
    with pytest.raises(UserError, match="not a valid archive"):
        cifar.load10(data, True)
    assert [path.name for path in data.iterdir()] == ["secret"]
    assert [path.name for path in data.parent.iterdir()] == ["data"]


@pytest.mark.parametrize("damage", ["garbage", "cut", "empty"])
def test_damaged_archive(tmp_path: Path, site: Site, data: Path, damage: str) -> None:
    whole = cifar_archive(tmp_path)
    content = {"garbage": b"garbage" * 99, "cut": whole[: len(whole) // 2], "empty": b""}
    site.offer(ARCHIVE, content[damage])
    with pytest.raises(UserError, match="cifar-10-binary") as caught:
        cifar.load10(data, True)
    assert "cannot write" not in str(caught.value)
    assert not list(data.iterdir())


def test_archive_without_some_files(site: Site, data: Path) -> None:
    site.offer(ARCHIVE, tar((tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin"), b"")))
    with pytest.raises(UserError, match=r"cifar-10-batches-bin lacks data_batch_2\.bin"):
        cifar.load10(data, True)


def test_what_lies_in_the_way_is_kept(site: Site, data: Path) -> None:
    data.mkdir(parents=True)
    (data / "cifar-10-batches-bin").write_text("mine")
    with pytest.raises(UserError, match="lacks"):
        cifar.load10(data, True)
    assert (data / "cifar-10-batches-bin").read_text() == "mine"


def test_faster_process_wins(tmp_path: Path, site: Site, data: Path) -> None:
    site.offer(ARCHIVE, cifar_archive(tmp_path))
    target = data / "cifar-10-batches-bin"
    target.mkdir(parents=True)
    (target / "there").write_text("already")
    fetch.archive(ARCHIVE, target.name, fetch.Wanted("CIFAR-10", data, "it"), True)
    assert [path.name for path in target.iterdir()] == ["there"]
    assert [path.name for path in data.iterdir()] == [target.name]


def test_folder_that_cannot_be_made(tmp_path: Path, site: Site) -> None:
    site.offer(ARCHIVE, b"x")
    site.offer("train_32x32.mat", b"x")
    (tmp_path / "file").write_text("")
    for load in (cifar.load10, svhn.load_svhn):
        with pytest.raises(UserError, match=r"cannot write to .*file/data"):
            load(tmp_path / "file" / "data", True)


def test_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "variable"))
    assert data_folder(str(tmp_path)) == tmp_path
    assert data_folder(None) == tmp_path / "variable"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder("~/here") == tmp_path / "here"
    monkeypatch.setenv("UIAT_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder(None).name == "uiat"
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"the data folder .*file is a file"):
        data_folder(str(tmp_path / "file"))


def test_table_names_every_official_file() -> None:
    assert len(OFFICIAL) == 8
    for name, remote in OFFICIAL.items():
        assert remote.url.startswith("http")
        assert remote.url.endswith("/" + name)
        assert len(bytes.fromhex(remote.sha256)) == 32
