"""The commands themselves."""

import pytest

import uiat
from tests.cli.calls import call, refused
from tests.engine.processes import finish, spawn
from uiat.cli import COMMANDS


def test_usage_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["-h"]):
        found = call(capsys, *words)
        assert found.code == 0
        for name, (_, line) in COMMANDS.items():
            assert f"  {name:<10} {line}" in found.out.splitlines()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version").out == f"{uiat.__version__}\n"


@pytest.mark.parametrize(("typed", "meant"), [("trian", "train"), ("eval", "evaluate"), ("lst", "list")])
def test_an_unknown_command(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, typed) == f"unknown command {typed!r}: did you mean {meant!r}?"


def test_an_interrupt_is_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(args: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("uiat.cli.listing.main", interrupt)
    found = call(capsys, "list")
    assert (found.code, found.err) == (130, "uiat: interrupted\n")


def test_a_mistake_in_a_process_of_its_own() -> None:
    code, out, err = finish(spawn("uiat", "train", "digits-resnet8-uait"))
    assert (code, out) == (2, "")
    assert err == "uiat: unknown recipe 'digits-resnet8-uait': did you mean 'digits-resnet8-uiat'?\n"


def test_help_does_not_wait_for_the_engine() -> None:
    code, out, _ = finish(spawn("tests.cli.imports", "--help"))
    assert code == 0
    assert "uiat.engine.loop" not in out.split()
    assert "uiat.cli" in out.split()


@pytest.mark.parametrize("command", ["train", "evaluate", "list"])
def test_help_of_a_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, command, "--help")
    assert found.code == 0
    assert f"usage: uiat {command}" in found.out
