"""Output paths: links are followed, devices and FIFOs are not replaced."""

import json
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from tests.support.calls import call, stopped
from tests.support.data_files import fill
from tests.support.processes import run_uiat
from uiat.io import WriteError, write_json
from uiat.runs.run_folder import RunFolder

INFO = ("data", "info", "photos")
BENCH = ("bench", "--model", "resnet8", "--size", "8", "--methods", "natural", "--no-references", "--no-memory")
TEXT = {
    "evaluate --json": ("evaluate", "run", "--attacks", "natural", "--json"),
    "report --out": ("report", "run", "--pictures", "0", "-o"),
    "data info --json": (*INFO, "--json"),
    "bench --json": (*BENCH, "--batch-size", "2", "--rounds", "1", "--json"),
}
"""Outputs that are text; the path comes last."""
BINARY = {
    "evaluate --save-adversaries": ("evaluate", "run", "--attacks", "natural", "--save-adversaries"),
    "bench --figure": (*BENCH, "--figure"),
    "data pack --out": ("data", "pack", "photos", "--out"),
    "curves --out": ("curves", "run", "--out"),
    "inverse --out": ("inverse", "run", "--out"),
    "export --out": ("export", "run", "--out"),
}
"""Binary outputs and folders."""


@pytest.fixture(autouse=True)
def here(finished_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "data"))
    shutil.copytree(finished_run.path, "run")
    fill(tmp_path / "photos", {"a": 6, "b": 6})
    return tmp_path


def full_device(folder: Path) -> Path:
    """Create a device like /dev/full, since a faulty program that runs as root would replace the real one."""
    try:
        os.mknod(folder / "full", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        (folder / "full").open("w").close()
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    return folder / "full"


@pytest.mark.parametrize("args", TEXT.values(), ids=TEXT)
def test_text_through_a_link(args: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "store").mkdir()
    for target, text in {"old": "old", "new": None}.items():  # a link to a file, and one to none
        if text is not None:
            Path("store", target).write_text(text)
        Path("link").unlink(missing_ok=True)
        Path("link").symlink_to(f"store/{target}")
        assert call(capsys, *args, "link").code == 0
        assert os.readlink("link") == f"store/{target}"
        assert Path("store", target).stat().st_size > 100
    assert sorted(os.listdir("store")) == ["new", "old"]


@pytest.mark.parametrize("args", TEXT.values(), ids=TEXT)
def test_text_into_a_fifo(args: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("fifo")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("fifo").read_text()), daemon=True)
    reader.start()
    assert call(capsys, *args, "fifo").code == 0
    reader.join(60)
    assert Path("fifo").is_fifo()
    assert len(read[0]) > 100


@pytest.mark.parametrize("args", TEXT.values(), ids=TEXT)
def test_text_into_a_full_device(args: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = full_device(here)
    found = call(capsys, *args, str(device))
    assert found.code == 2
    assert f"cannot write {device}" in found.err
    assert device.is_char_device()


KINDS = ("socket", "loop", "folder", "device", "fifo")
REFUSED = {f"{name}-{kind}": (args, kind) for name, args in TEXT.items() for kind in KINDS[:3]}
REFUSED |= {
    f"{name}-{kind}": (args, kind)
    for name, args in BINARY.items()
    for kind in KINDS
    if kind != "folder" or not name.endswith("--out")
}


@pytest.mark.parametrize(("command", "kind"), REFUSED.values(), ids=REFUSED)
def test_refused_before_any_work(
    command: tuple[str, ...], kind: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*args: object, **options: object) -> None:
        raise AssertionError("the work has begun")

    for work_place in ("evaluation.suite.natural_stage", "cli.curves.measure", "cli.inverse.make_inverses"):
        monkeypatch.setattr(f"uiat.{work_place}", work)
    for work_place in ("bench.time_methods", "data.describe_data", "report.read_runs"):
        monkeypatch.setattr(f"uiat.cli.{work_place}", work)
    place = Path("place.png")
    if kind == "device":
        full_device(here).rename(place)
    elif kind == "socket":
        os.mknod(place, 0o666 | stat.S_IFSOCK)
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(place.name)
    before = place.lstat()
    assert place.name in stopped(capsys, *command, place.name)
    assert (place.lstat().st_ino, place.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_no_link_of_a_run_is_followed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").write_text("mine")
    Path("run/x.json").symlink_to(here / "mine")
    assert "run/x.json is a link" in stopped(capsys, *INFO, "--json", "run/x.json")
    assert Path("mine").read_text() == "mine"


@pytest.mark.parametrize("args", [TEXT["data info --json"], BINARY["bench --figure"], BINARY["curves --out"]])
@pytest.mark.parametrize("depth", ["", "deep/er"])
def test_no_link_of_a_run_is_on_the_way(
    args: tuple[str, ...], depth: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run/link/x.png`, where `link` leads to another folder; a link to the run's folder itself is allowed."""
    shutil.copytree("run", "other")
    Path("mine", "deep").mkdir(parents=True)
    Path("other", depth).mkdir(parents=True, exist_ok=True)
    Path("other", depth, "link").symlink_to(here / "mine")
    Path("to_other").symlink_to("other")
    for run in ("other", "to_other"):
        place = Path(run, depth, "link")
        assert f"{place} is a link" in stopped(capsys, *args, str(place / "deep" / "x.png"))
    assert sorted(path.name for path in Path("mine").rglob("*")) == ["deep"]
    assert call(capsys, *INFO, "--json", "to_other/x.json").code == 0


def test_files_of_a_run_replace_no_device(here: Path) -> None:
    os.mkfifo("run/fifo")
    with pytest.raises(WriteError, match="run/fifo"):
        write_json(Path("run/fifo"), {})
    assert Path("run/fifo").is_fifo()


@pytest.mark.parametrize("to_file", [False, True], ids=["pipe", "file"])
def test_json_on_stdout(to_file: bool, here: Path) -> None:
    """It precedes the table, on a pipe or in a file; other lines of the file stay."""
    reading, writing = os.pipe()
    with Path("out").open("w+") as file, os.fdopen(reading) as pipe:
        stdout = file.fileno() if to_file else writing
        assert run_uiat(here / "log", *INFO, "--json", "/dev/stdout", stdout=stdout)[0] == 0
        os.close(writing)
        out = Path("out").read_text() if to_file else pipe.read()
    content, end = json.JSONDecoder().raw_decode(out)
    assert content["classes"] == ["a", "b"]
    assert "where: " in out[end:]
