"""Exit codes and error messages of `uiat train --processes`, with a script in place of torchrun."""

import errno
import signal
import sys
from pathlib import Path

import pytest

from uiat.cli.launch import launch, raise_refusal, refuse
from uiat.errors import Resumable, UserError

HEARD = 'while [ ! -e "$UIAT_STOP_FILE" ]; do sleep 0.05; done; '
STOPPED = 'touch "$UIAT_STOP_FILE.stopped"; '


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (f"kill -INT $PPID; {HEARD} {STOPPED}", 130),
        (f"kill -TERM $PPID; {HEARD} {STOPPED}", 143),
        (f"kill -HUP $PPID; {HEARD} {STOPPED}", 129),  # the terminal, or ssh, was closed
        (f"kill -TERM $PPID; {HEARD}", 0),  # the training was at its end
        ("kill -TERM $PPID; exit 1", 143),  # a scheduler's signal reached torchrun, too
        (STOPPED, 143),  # a signal reached the processes alone
        ("exit 1", 1),
        ("exit 0", 0),
    ],
)
def test_the_exit_code(script: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f"#!/bin/sh\n{script}\n")
    torchrun.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(torchrun))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    try:
        assert launch(tmp_path / "run", 2, 3, []) == code
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_error_of_a_worker_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/sh\nprintf "\\nno such thing: mend it." > "$UIAT_STOP_FILE.refused"\n')
    torchrun.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(torchrun))
    with pytest.raises(UserError, match=r"^no such thing: mend it\.$"):
        launch(tmp_path / "run", 2, 3, [])


def test_an_error_that_a_worker_could_not_write(tmp_path: Path) -> None:
    """A full disk leaves an empty file: the run can be resumed, and does not count as one that never started."""
    (tmp_path / "stop.refused").touch()
    with pytest.raises(Resumable, match="worker"):
        raise_refusal(tmp_path / "stop")


def test_a_full_disk_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UIAT_STOP_FILE", str(tmp_path / "stop"))
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(Path, "open", full)
    assert refuse(UserError("no such thing: mend it.")) == 0
    assert capsys.readouterr().err == "uiat: no such thing: mend it.\n"


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_worker_of_reproduce_prints_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No launcher reads an error file: the output is in the log."""
    monkeypatch.setenv("UIAT_STOP_FILE", str(tmp_path / "stop"))
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert refuse(UserError("no such thing: mend it.")) == 2
    assert capsys.readouterr().err == "uiat: no such thing: mend it.\n"
    assert not list(tmp_path.iterdir())
