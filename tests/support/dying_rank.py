"""`uiat` with a process that dies once: rank DIE_RANK kills itself before its step DIE_STEP, the first time."""

import importlib
import os
import signal
import sys
from typing import Any

from uiat.cli import main
from uiat.distributed import restarted

loop: Any = importlib.import_module("uiat.engine.loop")
_step, _count = loop.train_step, 0


def dying(*args: Any, **kwargs: Any) -> None:
    global _count
    _count += 1
    mine = os.environ["RANK"] == os.environ["DIE_RANK"]
    if mine and not restarted() and _count == int(os.environ["DIE_STEP"]):
        os.kill(os.getpid(), signal.SIGKILL)
    _step(*args, **kwargs)


if __name__ == "__main__":
    loop.train_step = dying
    sys.exit(main())
