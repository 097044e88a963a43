"""A stop that a person, a scheduler or a parent process asks for, obeyed between two steps."""

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
from types import FrameType, TracebackType
from typing import Any

STOP_FILE = "UIAT_STOP_FILE"
"""Names a file whose appearance asks for a stop: how `uiat train --processes` reaches processes that torchrun owns."""
STOP_PREFIX = "uiat-stop-"
"""How the folder of such a file begins its name, where a parent process has made it."""
GRACE_SECONDS = 120.0
"""How long processes that were asked to stop may take for their step and their checkpoint."""


class StopSignal:
    """Within it, Ctrl-C, SIGTERM and SIGHUP only raise a flag; a second Ctrl-C interrupts at once.

    A SIGHUP that is ignored, as `nohup` has it, stays ignored.
    """

    def __init__(self) -> None:
        self._first = 0
        """The number of the first signal that came; 0: none."""
        self._file = os.environ.get(STOP_FILE)
        self._before: dict[signal.Signals, object] = {}

    @property
    def requested(self) -> bool:
        """Whether a stop was asked for, by a signal or by the file."""
        return bool(self._first) or self._by_file()

    def _by_file(self) -> bool:
        """Whether the file is there, or its folder is not: then the process that would make it has ended."""
        return self._file is not None and (
            os.path.exists(self._file) or not os.path.exists(os.path.dirname(os.path.abspath(self._file)))
        )

    @property
    def exit_code(self) -> int:
        """The exit code of a stopped command, as in shells: 128 + signal (130 after Ctrl-C), 143 by the file."""
        return 128 + (self._first or signal.SIGTERM)

    def __enter__(self) -> "StopSignal":
        # Python lets only the main thread set handlers; a loop run in another thread is stopped by its owner.
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if name != signal.SIGHUP or signal.getsignal(name) is not signal.SIG_IGN:
                    self._before[name] = signal.signal(name, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._first and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._first = self._first or number


@contextmanager
def stop_file() -> Iterator[Path]:
    """Yield the path of a file, not there yet, whose appearance stops the processes that `start_child` starts."""
    with TemporaryDirectory(prefix=STOP_PREFIX) as folder:
        yield Path(folder) / "stop"


def python_module(name: str, *args: str) -> list[str]:
    """Return the command `python -m NAME ARGS…`; a `random.py` in the current folder does not shadow Python's."""
    return [sys.executable, "-P", "-m", name, *args]


def start_child(command: list[str], file: Path, environment: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that stops when the file appears, and when this process ends, in whatever way.

    In a new session, Ctrl-C and the hang-up of a terminal reach this process alone. The child's stdin, which its own
    children inherit, ends with this process: `stop_with_parent` notices that, also after a SIGKILL.
    """
    environment = {**environment, STOP_FILE: str(file)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, start_new_session=True, **options)


def stop_with_parent() -> None:
    """In a process that `start_child` started, or in a child of it: stop when the process that called that has ended.

    The folder of the file is removed, which is a stop, and nobody else would do it.
    """
    folder = Path(os.environ.get(STOP_FILE, "")).parent
    if not folder.name.startswith(STOP_PREFIX):
        return

    def listen() -> None:
        # Not sys.stdin: Python cannot end in order while another thread holds its lock.
        with suppress(OSError):
            while os.read(0, 1):
                pass
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(GRACE_SECONDS)
        os._exit(1)  # the last checkpoint or batch is on the disk

    threading.Thread(target=listen, daemon=True).start()
