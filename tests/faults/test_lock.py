"""Locks: one living process writes a run, and the error message for any other names it."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.moments import at_call
from tests.support.runs import STEPS, resume_run, tiny
from uiat.errors import UserError
from uiat.locks import is_locked, open_locked
from uiat.runs.run_folder import RunFolder

HOLD = (
    "import fcntl, sys, time\nf = open(sys.argv[1], 'a+')\nfcntl.flock(f, 2)\nprint('held', flush=True)\ntime.sleep(99)"
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", tiny("natural"))


@pytest.fixture
def dead() -> int:
    """Return the id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def holder(run: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lock and writes nothing into it."""
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


def test_a_killed_process_releases_its_lock(run: RunFolder, holder: subprocess.Popen[str]) -> None:
    assert "is in use by another process" in refusal(run)
    holder.kill()
    holder.wait()
    with run.lock():
        pass


@pytest.mark.parametrize("content", ["process {dead}", "process 99999999999999999999", "process -1", "\0\xff", "junk"])
def test_only_a_living_process_is_named(content: str, run: RunFolder, dead: int, holder: subprocess.Popen[str]) -> None:
    (run.path / "lock").write_text(content.format(dead=dead))
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


def test_a_lock_without_room_for_its_text_still_holds(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", fails)
    with run.lock():
        assert "is in use by another process" in refusal(run)


def test_other_errors_pass_through(run: RunFolder) -> None:
    with pytest.raises(FileNotFoundError), run.lock():
        (run.path / "nothing").read_bytes()


def test_a_link_is_neither_followed_nor_locked(tmp_path: Path) -> None:
    target, link = tmp_path / "file", tmp_path / "lock"
    target.write_text("kept")
    link.symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        open_locked(link)
    assert not is_locked(link)
    assert target.read_text() == "kept"


def test_a_pipe_in_the_place_of_a_lock_file_does_not_block(run: RunFolder) -> None:
    os.mkfifo(run.lock_file)
    assert not run.is_locked()
    with run.lock():
        assert run.is_locked()
        assert "is in use by another process" in refusal(run)


@pytest.mark.parametrize("taken", [True, False])
def test_a_lock_that_was_removed_by_hand_ends_its_holder(taken: bool, tmp_path: Path) -> None:
    """Another process can then train the run, and the first one no longer writes weights or checkpoints."""
    run = RunFolder.create(tmp_path / "run", tiny("natural"))
    files: dict[str, bytes] = {}

    def intrude() -> None:
        if not files:
            run.lock_file.unlink()
            files.update({path.name: path.read_bytes() for path in run.path.glob("*.*t*")})
            if taken:
                intruder.__enter__()

    intruder = RunFolder(run.path).lock()
    with at_call("uiat.engine.loop.train_step", STEPS + 2, intrude), pytest.raises(UserError) as caught:
        resume_run(run)
    assert str(run.lock_file) in str(caught.value)
    assert f"uiat train --resume {run.path}" in str(caught.value)
    assert "checkpoint.pt" in files
    names = ("checkpoint.pt", "best.safetensors", "last.safetensors")
    assert {name: (run.path / name).read_bytes() for name in names} == {name: files[name] for name in names}
    if taken:
        assert "is in use" in refusal(run)
        intruder.__exit__(None, None, None)
    assert resume_run(run)


def test_a_lock_file_that_is_replaced_before_it_is_locked_is_no_lock(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, others = fcntl.flock, [RunFolder(run.path).lock()]

    def late(handle: int, operation: int) -> None:
        flock(handle, operation)
        if others:
            other = others.pop()
            run.lock_file.unlink()
            other.__enter__()

    monkeypatch.setattr(fcntl, "flock", late)
    kept = others[0]
    assert "is in use" in refusal(run)
    kept.__exit__(None, None, None)
