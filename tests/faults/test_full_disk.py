"""A full disk: one error message, the last good checkpoint is kept, and with free space the run resumes."""

import errno
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.kills import LARGEST, SYNC, Tally, Unbroken, run_command, train
from tests.support.moments import LINE, at_call
from uiat.cli import main
from uiat.runs.run_folder import RunFolder


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def check_message(output: str, run: RunFolder, why: str) -> None:
    """Assert that the last line names what could not be written, why, and how to resume."""
    line = output.rstrip().splitlines()[-1]
    assert line.startswith("uiat: cannot write "), output
    assert why in line
    assert "Traceback" not in output
    if run.config.exists():
        kept = run.checkpoint.exists() or run.previous.exists()
        assert ("the last good checkpoint is kept" if kept else "there is no checkpoint yet") in line
        assert f"`uiat train --resume {run.path}`" in line
    assert list(run.path.glob(".*.tmp")) == []


def sampled(numbers: range, count: int) -> list[object]:
    """Return random numbers, the first unmarked."""
    chosen = random.Random(str(numbers)).sample(numbers, count)
    return [chosen[0], *(pytest.param(number, marks=pytest.mark.faults) for number in chosen[1:])]


@pytest.mark.parametrize("number", sampled(range(3, 27), 12))
def test_no_room_when_a_file_is_flushed(
    number: int, unbroken: Unbroken, tally: Tally, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with at_call(SYNC, number, full, before=True):
        assert main(train("uiat", "by-epoch", out)) == 2
    finish(out, capfd.readouterr().err, unbroken, tally)


@pytest.mark.parametrize("number", sampled(range(1, 7), 4))
def test_no_room_for_a_line_of_metrics(
    number: int, unbroken: Unbroken, tally: Tally, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with at_call(LINE, number, full, before=True):
        assert main(train("uiat", "by-epoch", out)) == 2
    finish(out, capfd.readouterr().err, unbroken, tally)


def finish(out: Path, output: str, unbroken: Unbroken, tally: Tally) -> None:
    tally.add("refused")
    check_message(output, RunFolder(out), "No space left on device")
    tally.add("resumes")
    assert main(train("uiat", "by-epoch", out)) == 0
    tally.compare(out, unbroken.get("uiat", "by-epoch")[0])


@pytest.mark.parametrize("size", sampled(range(1000, LARGEST), 16))
def test_no_room_after_so_many_bytes(size: int, unbroken: Unbroken, tally: Tally, out: Path) -> None:
    """The kernel refuses every byte of a file beyond a size, for Python and native code alike."""
    end = run_command(train("uiat", "by-step", out), cause={"how": "limit", "number": size})
    assert end.codes == [2], end.output
    tally.add("refused")
    check_message(end.output, RunFolder(out), "File too large")
    tally.add("resumes")
    assert run_command(train("uiat", "by-step", out)).finished
    tally.compare(out, unbroken.get("uiat", "by-step")[0])


@contextmanager
def tmpfs(folder: Path, kilobytes: int) -> Iterator[None]:
    """Mount a disk of this size; skip where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"cannot mount a small disk: {error}")
    if done.returncode:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.faults
@pytest.mark.parametrize("saving", ["by-epoch", "by-step"])
@pytest.mark.parametrize("kilobytes", range(4, 150, 16))
def test_a_disk_that_is_full(kilobytes: int, saving: str, unbroken: Unbroken, tally: Tally, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with tmpfs(disk, kilobytes):
        out = disk / "run"
        end = run_command(train("uiat", saving, out))
        assert end.codes == [2], end.output
        tally.add("refused")
        check_message(end.output, RunFolder(out), "No space left on device")
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        tally.add("resumes")
        end = run_command(train("uiat", saving, out))
        assert end.finished, end.output
        tally.compare(out, unbroken.get("uiat", saving)[0])


@pytest.mark.parametrize("number", sampled(range(1, 8), 3))
def test_no_room_for_an_evaluation(number: int, tally: Tally, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(train("uiat", "by-epoch", out)).finished
    command = [
        "evaluate",
        str(out),
        "--n",
        "16",
        "--batch-size",
        "8",
        "--attacks",
        "natural",
        "pgd-2",
        "--device",
        "cpu",
    ]
    with at_call(SYNC, number, full, before=True):
        assert main(command) == 2
    tally.add("refused")
    line = capfd.readouterr().err.rstrip().splitlines()[-1]
    assert line.startswith(f"uiat: cannot write {out}")
    assert "No space left on device" in line
    assert list(out.glob(".*.tmp")) == []
    assert main(command) == 0
