"""Helpers that call the command line in this process."""

import re
import shlex
from dataclasses import dataclass

import pytest

from uiat.cli import main


@dataclass(frozen=True)
class Call:
    """How a command ended."""

    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *args: str) -> Call:
    """Run a command."""
    capsys.readouterr()
    code = main(list(args))
    found = capsys.readouterr()
    return Call(code, found.out, found.err)


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Return the error message of an invalid command: one line, exit code 2."""
    found = call(capsys, *args)
    assert (found.code, found.out) == (2, "")
    assert found.err.count("\n") == 1, found.err
    line = found.err.removesuffix("\n")
    assert line.startswith("uiat: ")
    assert line.endswith((".", "?"))
    return line.removeprefix("uiat: ")


def stopped(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Return the error message of a command that may have printed notes before; exit code 2."""
    found = call(capsys, *args)
    assert found.code == 2
    assert "Traceback" not in found.err
    line = found.err.splitlines()[-1]
    assert line.startswith("uiat: ")
    return line.removeprefix("uiat: ")


def missing_facts(message: str, facts: str) -> list[str]:
    """Return the facts, separated as in a shell, that a message does not contain as whole words."""
    parts = shlex.split(facts)
    return [part for part in parts if not re.search(rf"(?<![\w.-]){re.escape(part)}(?!\w|\.\d)", message)]


def refused_flag(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Return the box about an invalid flag, as one line of text."""
    found = call(capsys, *args)
    assert (found.code, found.out) == (2, "")
    assert "Traceback" not in found.err
    return " ".join(found.err.replace("│", " ").split())
