"""Who may write a run: one living process, and the words of a refusal name it."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runs import tiny
from uiat.errors import UserError
from uiat.runs.folder import RunFolder

HOLD = (
    "import fcntl, sys, time\nf = open(sys.argv[1], 'a+')\nfcntl.flock(f, 2)\nprint('held', flush=True)\ntime.sleep(99)"
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", tiny("natural"))


@pytest.fixture
def dead() -> int:
    """Return the number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def holder(run: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lock and wrote nothing into it."""
    command = [sys.executable, "-c", HOLD, str(run.path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def refusal(run: RunFolder) -> str:
    with pytest.raises(UserError) as caught, run.lock():
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_file_of_a_dead_process_is_no_lock(run: RunFolder, dead: int) -> None:
    (run.path / "lock").write_text(f"process {dead}, and a line that is longer than any that is written now " * 3)
    with run.lock():
        assert (run.path / "lock").read_text().startswith(f"process {os.getpid()} on ")
        assert (run.path / "lock").read_text().count("process") == 1


def test_the_same_process_twice(run: RunFolder) -> None:
    with run.lock():
        assert f"is in use by process {os.getpid()} on " in refusal(run)
    with run.lock():  # and free again
        pass


def test_a_killed_process_lets_go(run: RunFolder, holder: subprocess.Popen[str]) -> None:
    assert "is in use by another process" in refusal(run)
    holder.kill()
    holder.wait()
    with run.lock():
        pass


@pytest.mark.parametrize("words", ["process {dead}", "process 99999999999999999999", "process -1", "\0\xff", "junk"])
def test_only_a_living_process_is_named(words: str, run: RunFolder, dead: int, holder: subprocess.Popen[str]) -> None:
    (run.path / "lock").write_text(words.format(dead=dead))
    assert "is in use by another process:" in refusal(run)
    (run.path / "lock").write_text(f"process {holder.pid}")
    assert f"is in use by process {holder.pid}:" in refusal(run)
    (run.path / "lock").write_text(f"process {dead} on another-machine")  # which cannot be asked
    assert f"is in use by process {dead} on another-machine:" in refusal(run)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO, errno.ENOSYS])
def test_a_file_system_without_locks(number: int, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fails)
    assert f"cannot be locked ({os.strerror(number)})" in refusal(run)


def test_a_lock_that_cannot_be_opened(run: RunFolder) -> None:
    (run.path / "lock").mkdir()
    assert f"cannot write the run folder {run.path}: Is a directory." in refusal(run)


def test_no_room_for_the_words_is_no_reason_to_stop(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", fails)
    with run.lock():
        assert "is in use by another process" in refusal(run)


def test_other_errors_pass_through(run: RunFolder) -> None:
    with pytest.raises(FileNotFoundError), run.lock():
        (run.path / "nothing").read_bytes()
