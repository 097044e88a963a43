"""The data folder, and downloads of official files into it.

A file is moved into place after its digest was verified, a folder after it was extracted.
"""

import os
import tarfile
import tempfile
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uiat.errors import UserError, first_line
from uiat.paths import user_path

if TYPE_CHECKING:
    import requests


@dataclass(frozen=True)
class Remote:
    """The address of an official file and its digest."""

    url: str
    sha256: str
    """As TensorFlow Datasets records it; the MD5 that some authors publish could be forged."""


_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
"""The authors' repository; the address in their README is an S3 website, which has no https."""
_SVHN = "http://ufldl.stanford.edu/housenumbers/"
"""Not known to be served over https; the digest guards it."""

OFFICIAL: dict[str, Remote] = {
    name: Remote(site + name, sha256)
    for site, name, sha256 in (
        (_CIFAR, "cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
        (_CIFAR, "cifar-100-binary.tar.gz", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
        (_SVHN, "train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
        (_SVHN, "test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
        (_FASHION, "train-images-idx3-ubyte.gz", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (_FASHION, "train-labels-idx1-ubyte.gz", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (_FASHION, "t10k-images-idx3-ubyte.gz", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (_FASHION, "t10k-labels-idx1-ubyte.gz", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    )
}
"""The official files by name."""


class DatasetNotFound(UserError):
    """A built-in data set is not on the disk, and downloads are disabled."""


@dataclass(frozen=True)
class Wanted:
    """A missing data set and its files, for error messages."""

    name: str
    folder: Path
    files: str

    def error(self, problem: str, instead: str) -> UserError:
        """Return an error with the problem and the folder into which the files can be put by hand."""
        by_hand = f"put {self.files} into {self.folder}, give another folder with --data-dir"
        return UserError(f"{problem}: {by_hand}, or {instead}.")

    def check(self, download: bool) -> None:
        """Raise an error if downloads are disabled."""
        if not download:
            raise DatasetNotFound(
                str(self.error(f"{self.name} is not in {self.folder}", "download it with `uiat data fetch`"))
            )


def cache_folder() -> Path:
    """Return the user's cache folder for this package."""
    import pooch  # slow to import

    return Path(pooch.os_cache("uiat"))


def data_folder(data_dir: str | None) -> Path:
    """Return the folder of all data sets: the given one, else $UIAT_DATA, else the user's cache."""
    given = data_dir or os.environ.get("UIAT_DATA")
    if not given:
        return cache_folder()
    folder = user_path(given).absolute()
    if os.path.exists(folder) and not folder.is_dir():
        raise UserError(f"the data folder {folder} is a file: give a folder with --data-dir or $UIAT_DATA.")
    return folder


def file(name: str, folder: Path, wanted: Wanted, download: bool) -> Path:
    """Download an official file into `folder`, where it appears after its digest was verified."""
    import requests

    wanted.check(download)
    remote = OFFICIAL[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _retrieve(remote, folder, name)
    except requests.RequestException as error:
        why = type(error).__name__ if error.response is None else first_line(error)
        problem = f"{wanted.name} is not in {wanted.folder} and {remote.url} did not send it ({why})"
        raise wanted.error(problem, "try again later") from error
    except OSError as error:
        raise _cannot_write(wanted.folder, error) from error
    except ValueError as error:  # how pooch reports a wrong digest
        problem = f"what {remote.url} sent does not have the digest sha256:{remote.sha256} and was discarded"
        raise wanted.error(problem, "try again later") from error


def archive(name: str, member: str, wanted: Wanted, download: bool) -> None:
    """Download an official archive, and move its folder `member` into the data folder once it is extracted."""
    wanted.check(download)
    data = wanted.folder
    try:
        data.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=data) as temporary:
            packed = file(name, Path(temporary), wanted, download)
            with tarfile.open(packed) as tar:
                tar.extractall(temporary, filter="data")
            try:
                (Path(temporary) / member).rename(data / member)
            except OSError:
                if not (data / member).is_dir():  # else another process has written the same content
                    raise
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"{OFFICIAL[name].url} is not a valid archive ({first_line(error)}).") from error
    except OSError as error:
        raise _cannot_write(data, error) from error


def _retrieve(remote: Remote, folder: Path, name: str) -> Path:
    import pooch

    with ExitStack() as stack:  # pooch leaves the connection open if a download fails

        def close_later(response: "requests.Response", **_: object) -> None:
            stack.callback(response.close)

        downloader = pooch.HTTPDownloader(progressbar=True, timeout=30, hooks={"response": close_later})
        path = Path(pooch.retrieve(remote.url, f"sha256:{remote.sha256}", name, folder, downloader=downloader))
    path.chmod(0o644)  # pooch keeps the private mode of a temporary file
    return path


def _cannot_write(folder: Path, error: OSError) -> UserError:
    return UserError(f"cannot write to {folder} ({first_line(error)}): give another folder with --data-dir.")
