"""`python -m tests.engine.child MOMENT TARGET NUMBER ARGS…`: the command line in a process that meets its moment.

MOMENT is `kill` (SIGKILL after the call), `kill-before`, or `wait`: say so in the file $READY and wait for $GO.
"""

import os
import sys
import time
from pathlib import Path

from tests.engine.moments import at_call, kill
from uiat.cli import main


def wait() -> None:
    Path(os.environ["READY"]).touch()
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.01)


if __name__ == "__main__":
    moment, target, number, *args = sys.argv[1:]
    act = wait if moment == "wait" else kill
    with at_call(target, int(number), act, before=moment == "kill-before"):
        code = main(args)
    sys.exit(code)
