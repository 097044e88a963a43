"""A stop that a person or a scheduler asks for, obeyed between two steps."""

import os
import signal
import threading
from types import FrameType, TracebackType

STOP_FILE = "UIAT_STOP_FILE"
"""Names a file whose appearance asks for a stop: how `uiat train --processes` reaches processes that torchrun owns."""


class StopSignal:
    """Within it, Ctrl-C and SIGTERM only raise a flag; a second Ctrl-C interrupts at once."""

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
        """The exit code of a stopped command, as shells have it: 130 after Ctrl-C, 143 after SIGTERM or by the file."""
        return 128 + (self._first or signal.SIGTERM)

    def __enter__(self) -> "StopSignal":
        # Python lets only the main thread set handlers; a loop run in another thread is stopped by its owner.
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGINT, signal.SIGTERM):
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
