"""A stopped run saves a checkpoint, prints how to resume, and ends in the same bits."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.support.moments import STEP, at_call, main_with_pause, terminate
from tests.support.processes import fork
from tests.support.runs import STEPS, TINY, assert_same, load_checkpoint, resume_run, tiny, unbroken
from uiat.cli import main
from uiat.cli.launch import refuse, stopped
from uiat.engine.signals import STOP_FILE, StopSignal
from uiat.errors import UserError
from uiat.runs.run_folder import RunFolder

COMMAND = ["train", "digits-resnet8-uiat", *TINY, "--method.attack.steps", "2"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_a_process(number: signal.Signals, tmp_path: Path) -> None:
    out, ready, go = tmp_path / "run", tmp_path / "ready", tmp_path / "go"
    command = [*COMMAND, "--out", str(out)]
    process = fork(tmp_path / "output.txt", main_with_pause, command, STEP, STEPS + 2, ready, go)
    process.wait_for(ready)
    os.kill(process.pid, number)
    go.touch()
    code, output = process.end()
    assert code == 128 + number, "a stopped training is not a finished one"
    assert "stopped in epoch 2 after step 2; all is saved" in output
    assert f"resume with: uiat train --resume {out}" in output
    assert "Traceback" not in output

    run = RunFolder.open(out)
    assert "stopped in epoch 2 after step 2" in run.log.read_text()
    saved = load_checkpoint(run)
    assert (saved["epoch"], saved["step"]) == (2, 2)
    assert not run.result.exists()


@pytest.mark.parametrize("step", [1, STEPS + 2, 3 * STEPS], ids=["first", "within", "last"])
def test_a_stop_changes_no_bit(step: int, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", tiny("uiat"))
    with at_call(STEP, step, terminate):
        assert not resume_run(run)
    assert not run.result.exists()
    assert resume_run(run)
    assert_same(run, unbroken(tiny("uiat")))


def test_a_stop_while_the_helper_is_trained(tmp_path: Path) -> None:
    config = tiny("hat", epochs=2)
    run = RunFolder.create(tmp_path / "run", config)
    with at_call(STEP, 2, terminate):
        assert not resume_run(run)
    assert load_checkpoint(RunFolder.open(run.helper))["step"] == 2
    assert not run.checkpoint.exists()
    assert resume_run(run)
    assert_same(run, unbroken(config))


def test_a_second_interrupt_acts_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("ignored", [False, True], ids=["terminal", "nohup"])
def test_a_hang_up_is_a_stop_unless_it_is_ignored(ignored: bool) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with StopSignal() as stop:
            signal.raise_signal(signal.SIGHUP)
        assert stop.requested is not ignored
        assert ignored or stop.exit_code == 129
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_exit_code_is_that_of_the_first_signal() -> None:
    for first, second in ((signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGTERM)):
        with StopSignal() as stop:
            signal.raise_signal(first)
            signal.raise_signal(second)
        assert stop.exit_code == 128 + first


def test_a_launcher_that_is_gone_is_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is removed too; a second Ctrl-C must not leave processes that train on."""
    folder = tmp_path / "launcher"
    folder.mkdir()
    monkeypatch.setenv(STOP_FILE, str(folder / "stop"))
    monkeypatch.setenv("LOCAL_RANK", "0")
    stop = StopSignal()
    assert not stop.requested
    folder.rmdir()
    assert stop.requested
    assert stopped(stop) == 0
    assert main(["train", "--resume", str(tmp_path / "none")]) == 0, "torchrun must not start it again"
    assert refuse(UserError("a mistake")) == 0


def test_another_thread_sets_no_handlers() -> None:
    before, found = signal.getsignal(signal.SIGTERM), []

    def loop() -> None:
        with StopSignal() as stop:
            found.append((stop.requested, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert found == [(False, before)]
