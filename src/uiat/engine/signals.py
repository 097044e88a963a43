"""Graceful stop by a signal or by a file, between two steps."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

STOP_FILE = "UIAT_STOP_FILE"
"""Environment variable with the path of a file that requests a stop, for processes started through torchrun."""
STOP_PREFIX = "uiat-stop-"
"""Prefix of the folder of such a file, if a parent process has created it."""
GRACE_SECONDS = 120.0
"""Time limit for processes to finish their step and checkpoint after a stop request."""


class StopSignal:
    """Within the context, Ctrl-C, SIGTERM and SIGHUP set a flag; a second Ctrl-C interrupts at once.

    A SIGHUP that is ignored, as under `nohup`, stays ignored.
    """

    def __init__(self) -> None:
        self._first = 0
        """Number of the first signal; 0: none."""
        self._file = os.environ.get(STOP_FILE)
        self._before: dict[signal.Signals, object] = {}

    @property
    def requested(self) -> bool:
        """Whether a stop was requested: by a signal, by the file, or by a parent process that has ended."""
        if self._first or self._file is None:
            return bool(self._first)
        return os.path.exists(self._file) or not os.path.exists(os.path.dirname(os.path.abspath(self._file)))

    @property
    def exit_code(self) -> int:
        """The exit code of a stopped command, as in shells: 128 + signal (130 after Ctrl-C), or 143 for the file."""
        return 128 + (self._first or signal.SIGTERM)

    def __enter__(self) -> "StopSignal":
        # Only the main thread may set handlers; a loop in another thread is stopped by its owner.
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if name != signal.SIGHUP or signal.getsignal(name) is not signal.SIG_IGN:
                    self._before[name] = signal.signal(name, self._on_signal)
        return self

    def __exit__(self, *_error: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._first and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._first = self._first or number


@contextmanager
def stop_file() -> Iterator[Path]:
    """Yield the path of a file that does not exist yet; creating it stops the processes started by `start_child`."""
    with TemporaryDirectory(prefix=STOP_PREFIX) as folder:
        yield Path(folder) / "stop"


def python_module(name: str, *args: str) -> list[str]:
    """Return the command `python -m NAME ARGS…`; a `random.py` in the current folder does not shadow Python's."""
    return [sys.executable, "-P", "-m", name, *args]


def start_child(command: list[str], file: Path, environment: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that stops when the file is created or when this process ends.

    In a new session, Ctrl-C and the hang-up of a terminal reach only this process. The child's stdin, which its
    children inherit, is closed when this process ends: `stop_with_parent` detects that, even after a SIGKILL.
    """
    environment = {**environment, STOP_FILE: str(file)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, start_new_session=True, **options)


def stop_with_parent() -> None:
    """In a process started by `start_child`, or in a child of it: stop when the parent process has ended.

    The folder of the file is removed, which requests the stop.
    """
    folder = Path(os.environ.get(STOP_FILE, "")).parent
    if not folder.name.startswith(STOP_PREFIX):
        return

    def listen() -> None:
        # Not sys.stdin: Python cannot exit cleanly while another thread holds its lock.
        with suppress(OSError):
            while os.read(0, 1):
                pass
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(GRACE_SECONDS)
        os._exit(1)  # the last checkpoint or batch has been written

    threading.Thread(target=listen, daemon=True).start()
