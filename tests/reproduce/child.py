"""`python -m tests.reproduce.child ARGS…` runs the command line at the tiny scale.

With $KILL_AT=TARGET:NUMBER it ends like a process that is killed, right after that call.
"""

import os
import sys
from contextlib import nullcontext

from tests.engine.moments import at_call, kill
from tests.reproduce.tiny import tiny_scale
from uiat.cli import main

if __name__ == "__main__":
    target, _, number = os.environ.get("KILL_AT", "").rpartition(":")
    with tiny_scale(), at_call(target, int(number), kill) if target else nullcontext():
        sys.exit(main(sys.argv[1:]))
