"""Errors with one cause, in the arguments, the environment or the machine: one message, exit code 2, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.calls import call, refused
from tests.support.processes import run_uiat
from tests.support.runs import TINY
from uiat import distributed
from uiat.data.image_folder import MAX_DEPTH, scan
from uiat.errors import UserError, explain

TRAIN = ("train", "digits-resnet8-natural", *TINY)
BENCH = ("bench", "--model", "resnet8", "--size", "8")


def few_bytes() -> None:
    torch.empty(2**57)


def few_bytes_of_numpy() -> None:
    np.empty(2**57)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with circular links."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "data"))
    Path("loop").symlink_to("loop")
    Path("within/cats").mkdir(parents=True)
    Path("within/cats/again").symlink_to("../../within")
    for name in ("one", "none"):
        Path(f"log_{name}.py").write_text(f"def make({'run, config' if name == 'none' else 'run'}):\n    return int\n")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "environment", "facts"),
    [
        ((*TRAIN, "--device", "meta"), {}, ["'meta'", "--device cpu"]),
        ((*BENCH, "--device", "meta"), {}, ["'meta'", "--device cpu"]),
        ((*BENCH, "--threads", "100000"), {}, ["--threads", "100000"]),
        (TRAIN, {"WORLD_SIZE": "2"}, ["WORLD_SIZE=2", "RANK is not set", "torchrun"]),
        (TRAIN, {"WORLD_SIZE": "two"}, ["WORLD_SIZE=two"]),
        (TRAIN, {"WORLD_SIZE": "0"}, ["WORLD_SIZE=0"]),
        (("evaluate", "run"), {"WORLD_SIZE": "2"}, ["run"]),
        (("train", "--data", "loop"), {}, ["loop is a link"]),
        (("train", "--data", "within"), {}, ["within/cats/again", "link"]),
        (("data", "info", "loop"), {}, ["loop is a link"]),
        (("data", "pack", "loop/x"), {}, ["loop"]),
        (("evaluate", "loop"), {}, ["loop"]),
        (("export", "loop"), {}, ["loop is not a run folder"]),
        (("compare", "loop", "loop"), {}, ["loop"]),
        ((*TRAIN, "--out", "loop"), {}, ["loop"]),
        ((*TRAIN, "--out", "loop/run"), {}, ["loop"]),
        ((*TRAIN, "--out", "x" * 300), {}, ["x" * 300]),
        ((*TRAIN, "--init", "loop"), {}, ["loop"]),
        ((*TRAIN, "--import", "loop.py"), {}, ["loop.py"]),
        ((*TRAIN, "--log", "os:getcwd", "--out", "run"), {}, ["--log os:getcwd", "configuration"]),
        ((*TRAIN, "--log", "log_one:make", "--out", "run"), {}, ["--log log_one:make"]),
    ],
)
def test_one_message(
    args: tuple[str, ...],
    environment: dict[str, str],
    facts: list[str],
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = call(capsys, *args)
    assert found.code == 2
    assert "Traceback" not in found.err
    message = found.err.splitlines()[-1]
    assert message.startswith("uiat: ")
    assert all(fact in message for fact in facts), message
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    ("error", "fact"),
    [
        (MemoryError(), "--train.batch-size"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
            "--model.width",
        ),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "2.00 GiB"),
        (OverflowError("Python int too large to convert to C long"), "too large"),
        (RuntimeError("value cannot be converted to type float without overflow"), "too large"),
        (ValueError("Overflow when unpacking long long"), "too large"),
        (PermissionError(13, "Permission denied", "/secret/x"), "/secret/x: Permission denied"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_one_message_for_an_error_of_a_library(
    error: Exception, fact: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr("uiat.cli.train.dry_build", fail)
    assert fact in refused(capsys, *TRAIN, "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("allocate", [few_bytes, few_bytes_of_numpy])
def test_the_messages_are_those_of_the_installed_libraries(allocate: object) -> None:
    assert callable(allocate)
    with pytest.raises((MemoryError, RuntimeError)) as caught:  # beyond what any system can address
        allocate()
    assert "not enough memory" in str(explain(caught.value))


def test_what_may_be_a_bug_is_not_explained() -> None:
    for error in (RuntimeError("shapes differ"), KeyError("x"), FileNotFoundError(2, "No such file", "x")):
        assert explain(error) is None


def test_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1234"}.items():
        monkeypatch.setenv(name, value)
    assert distributed.launched() == 2
    monkeypatch.delenv("MASTER_ADDR")
    with pytest.raises(UserError, match="MASTER_ADDR is not set"):
        distributed.launched()


def test_folders_within_folders(tmp_path: Path) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1100):
            os.mkdir("a")
            os.chdir("a")
        with pytest.raises(UserError, match=f"more than {MAX_DEPTH} deep"):
            scan(tmp_path)
    finally:
        for _ in range(1100):  # rmtree of some Pythons is recursive, too
            if Path.cwd() == tmp_path:
                break
            os.chdir("..")
            os.rmdir("a")
        os.chdir(before)


def usage(stdout: int, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `uiat --help`, which imports little, in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-m", "uiat", "--help"],
        env={**os.environ, **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [("--help",), ("list",), ("completion", "bash"), (*TRAIN, "--dry-run")])
def test_a_full_disk_behind_stdout(args: tuple[str, ...], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        code, err = run_uiat(tmp_path / "log", *args, stdout=full.fileno())
        done = usage(full.fileno()) if args == ("--help",) else None  # Python flushes again when it exits
    assert code == 2
    for text in (err, *([done.stderr] if done else [])):
        assert text.splitlines()[-1].startswith("uiat: cannot write ")
        assert "No space left on device" in text
        assert "Traceback" not in text
        assert "Exception ignored" not in text
    assert done is None or done.returncode == 2


def test_a_reader_that_has_gone(tmp_path: Path) -> None:
    """As in `uiat list | head -1`, but deterministic: nothing is ever read."""
    reading, writing = os.pipe()
    os.close(reading)
    done = usage(writing)
    assert (done.returncode, done.stderr) == (0, "")
    assert run_uiat(tmp_path / "log", "list", stdout=writing) == (0, "")
    os.close(writing)


def test_stdout_that_is_not_utf_8() -> None:
    done = usage(subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u03b5" in done.stdout, "ε is escaped"
