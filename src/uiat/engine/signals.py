"""A stop that a person or a scheduler asks for, heard between two steps."""

import signal
import threading
from types import FrameType, TracebackType


class StopSignal:
    """Within it, Ctrl-C and SIGTERM only raise a flag; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "StopSignal":
        # Python lets only the main thread set handlers; a loop run in another thread is stopped by its owner.
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGINT, signal.SIGTERM):
                self._before[name] = signal.signal(name, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
