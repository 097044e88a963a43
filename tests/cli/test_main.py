"""`uiat`: usage, unknown commands, interruption."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import uiat
from tests.support.calls import call, refused
from tests.support.processes import finish, spawn
from uiat.cli import COMMANDS


def test_usage_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for args in ([], ["--help"], ["-h"]):
        found = call(capsys, *args)
        assert found.code == 0
        for name, (_, line) in COMMANDS.items():
            assert f"  {name:<10} {line}" in found.out.splitlines()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    for args in ("--version", "version"):
        assert call(capsys, args).out == f"{uiat.__version__}\n"


@pytest.mark.parametrize(("typed", "meant"), [("trian", "train"), ("eval", "evaluate"), ("lst", "list")])
def test_an_unknown_command(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, typed)
    assert repr(typed) in message
    assert repr(meant) in message


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("train", "uiat train --resume RUN"),
        ("evaluate", "same command"),
        ("curves", "same command"),
        ("reproduce", "same command"),
        ("inverse", "same command"),
        ("list", ""),
    ],
)
def test_an_interrupted_command_says_how_to_continue(
    command: str, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{COMMANDS[command][0]}.main", interrupt)
    found = call(capsys, command)
    assert found.code == 130
    assert found.err.startswith("uiat: interrupted; " if how else "uiat: interrupted\n")
    assert found.err.count("\n") == 1
    assert how in found.err


HALF_IMPORTED = """
import os, pathlib, time
pathlib.Path(os.environ["READY"]).touch()
try:
    time.sleep(60)
except BaseException:
    pass  # as partially imported libraries do
raise RuntimeError("no torch")
"""


def test_an_interrupt_during_imports(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(HALF_IMPORTED)
    ready = tmp_path / "ready"
    process = spawn("uiat", "train", READY=str(ready), PYTHONPATH=str(tmp_path))
    while not ready.exists():
        assert process.poll() is None, finish(process)
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "", "uiat: interrupted\n")


def test_a_user_error_in_a_process() -> None:
    code, out, err = finish(spawn("uiat", "trian"))
    assert (code, out) == (2, "")
    assert err.startswith("uiat: ")
    assert err.count("\n") == 1
    assert "'train'" in err


def test_help_does_not_wait_for_the_engine() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "uiat", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not {"torch", "numpy", "uiat.engine.loop"} & imported
    assert "uiat.cli" in imported
