"""The command line in processes that meet their moment.

`python -m tests.support.run_child kill ARGS…` first runs the command ARGS, unharmed, so that imports and first calls
are paid for once. Then it reads jobs from its input, a JSON list [MOMENT, TARGET, NUMBER, ARGS] a line, runs each in a
process of its own (a fork) and prints `ended CODE` for each. MOMENT is when SIGKILL falls: `before` or `after`
the call of this number.

`python -m tests.support.run_child wait TARGET NUMBER ARGS…` runs one, which after that call makes the file $READY and
waits for the file $GO.
"""

import json
import os
import sys
import time
from pathlib import Path

from tests.support.moments import at_call, kill
from uiat.cli import main


def run_killed(moment: str, target: str, number: int, args: list[str]) -> int:
    """Return the exit code of a process that was killed, −9 for SIGKILL."""
    child = os.fork()
    if child == 0:
        with at_call(target, number, kill, before=moment == "before"):
            os._exit(main(args))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait() -> None:
    Path(os.environ["READY"]).touch()
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        code = main(sys.argv[2:])
        for line in sys.stdin:
            print("ended", run_killed(*json.loads(line)), flush=True)
        sys.exit(code)
    with at_call(sys.argv[2], int(sys.argv[3]), wait):
        code = main(sys.argv[4:])
    sys.exit(code)
