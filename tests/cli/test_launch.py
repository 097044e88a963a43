"""The exit codes of `uiat train --processes`, with a script in torchrun's place."""

import sys
from pathlib import Path

import pytest

from uiat.cli.launch import launch
from uiat.errors import UserError

HEARD = 'while [ ! -e "$UIAT_STOP_FILE" ]; do sleep 0.05; done; '
STOPPED = 'touch "$UIAT_STOP_FILE.stopped"; '


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (f"kill -INT $PPID; {HEARD} {STOPPED}", 130),
        (f"kill -TERM $PPID; {HEARD} {STOPPED}", 143),
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
    assert launch(tmp_path / "run", 2, 3, []) == code


def test_a_mistake_of_a_process_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/sh\nprintf "\\nno such thing: mend it." > "$UIAT_STOP_FILE.refused"\n')
    torchrun.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(torchrun))
    with pytest.raises(UserError, match=r"^no such thing: mend it\.$"):
        launch(tmp_path / "run", 2, 3, [])
