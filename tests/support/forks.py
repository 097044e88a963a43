"""Commands in processes of their own that are forked from this one, so that nothing has to be imported again."""

import os
import signal
import sys
import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.support.moments import at_call, kill
from tests.support.tiny import tiny_scale
from uiat.cli import main


@dataclass(frozen=True)
class Fork:
    """A process and the file of what it says."""

    pid: int
    log: Path

    def end(self) -> tuple[int, str]:
        """Wait for it, and return its exit code (−9 for SIGKILL) and its words."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return code, self.log.read_text(encoding="utf-8")


def terminate() -> None:
    """Ask this process to stop, as a scheduler does."""
    os.kill(os.getpid(), signal.SIGTERM)


def fork(log: Path, *args: str, kill_at: str = "", stop_at: str = "") -> Fork:
    """Start a command at the tiny scale; right after the call `kill_at` or `stop_at`, TARGET:NUMBER, it is ended."""
    pid = os.fork()
    if pid:
        return Fork(pid, log)
    code = 70
    try:
        sys.stdout = sys.stderr = log.open("w", encoding="utf-8", buffering=1)
        target, _, number = (kill_at or stop_at).rpartition(":")
        act = kill if kill_at else terminate
        with tiny_scale(), at_call(target, int(number), act) if target else nullcontext():
            code = main(list(args))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
