"""Commands in other processes: in a new interpreter, in a fork of this one, or on each rank of a run."""

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 1800
"""Seconds that a process may take on a busy machine."""


def spawn(module: str, *args: str, cwd: Path = ROOT, **environment: str) -> subprocess.Popen[str]:
    """Start `python -m MODULE ARGS…` with one thread, from the root of the repository or another folder."""
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "120", **environment}
    return subprocess.Popen(
        [sys.executable, "-m", module, *args],
        cwd=cwd,
        env=settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_signals,
    )


def restore_signals() -> None:
    """Restore the default handlers of Ctrl-C and SIGHUP, also where the tests run in the background or under nohup."""
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.default_int_handler if name == signal.SIGINT else signal.SIG_DFL)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a process, and return (exit code, stdout, stderr)."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@dataclass(frozen=True)
class Fork:
    """A fork of this process, and the file that its output goes to."""

    pid: int
    log: Path

    def wait_for(self, file: Path) -> None:
        """Wait until it has created a file; it must not end before."""
        while not file.exists():
            assert os.waitpid(self.pid, os.WNOHANG)[0] == 0, self.log.read_text(encoding="utf-8")
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        """Wait for it, and return its exit code (−9 for SIGKILL) and its output."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return code, self.log.read_text(encoding="utf-8")


def fork(log: Path, function: Callable[..., int | None], *args: Any, **environment: str) -> Fork:
    """Call a function in a fork, without importing again; its return value is the exit code."""
    log.touch()  # a fork that is killed at once has an empty log
    pid = os.fork()
    if pid:
        return Fork(pid, log)
    code = 70
    try:
        os.environ.update(environment)
        restore_signals()
        signal.alarm(PATIENCE)  # ends a fork that hangs
        sys.stdout = sys.stderr = log.open("w", encoding="utf-8", buffering=1)
        for stream in (1, 2):
            os.dup2(sys.stdout.fileno(), stream)
        code = function(*args) or 0
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
        finally:
            os._exit(code)


def forget(*packages: str) -> None:
    """Remove packages from the imported modules of a fork."""
    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            del sys.modules[name]


def run_uiat(log: Path, *args: str, without: Iterable[str] = (), stdout: int = 1, stderr: int = 2) -> tuple[int, str]:
    """Run a command in a fork; return its exit code and its output, except what goes to other files.

    Modules that it must not import are named `without`; all of uiat is imported again then.
    """

    def command() -> int:
        if without:
            forget("uiat", *without)
            sys.modules.update(dict.fromkeys(without))  # type: ignore[arg-type]
        with ExitStack() as streams:
            for redirect, number, file in ((redirect_stdout, 1, stdout), (redirect_stderr, 2, stderr)):
                if file != number:
                    os.dup2(file, number)
                    stream: Any = streams.enter_context(open(number, "w", encoding="utf-8", closefd=False))
                    stream.buffer.raw.name = "<stdout>"  # instead of its number
                    streams.enter_context(redirect(stream))
            code: int = importlib.import_module("uiat.cli").main(list(args))
            return code

    return fork(log, command).end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ranks(world: int) -> list[dict[str, str]]:
    """Return the environment of each rank of a run, as torchrun sets it."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]


def fork_ranks(folder: Path, world: int, function: Callable[..., int | None], *args: Any) -> list[tuple[int, str]]:
    """Call a function in a fork for each rank; return exit codes and outputs. Logs are in the folder."""
    folder.mkdir(exist_ok=True)
    forks = [fork(folder / f"rank-{rank['RANK']}.txt", function, *args, **rank) for rank in ranks(world)]
    return [each.end() for each in forks]
