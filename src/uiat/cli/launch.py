"""`uiat train --processes K`: the run on several processes of this machine, started by torchrun."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from uiat.engine.signals import StopSignal

GRACE_SECONDS = 120.0
"""How long processes that were asked to stop may take for their step and their checkpoint."""


def launch(run: Path, processes: int, restarts: int, flags: list[str]) -> int:
    """Run `uiat train --resume RUN` under torchrun; a process that dies is started again up to `restarts` times.

    A stop that this process is asked for reaches all of them: they save and end, and that is a success.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    count = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    command = [*torchrun, *count, "-m", "uiat", "train", "--resume", str(run), *flags]
    threads = str(max(1, (os.cpu_count() or 1) // processes))
    environment = {"OMP_NUM_THREADS": threads, **os.environ}
    with StopSignal() as stop:
        # A session of their own: a Ctrl-C reaches this process alone, which passes it on once, in order.
        child = subprocess.Popen(command, env=environment, start_new_session=True)
        asked = False
        while True:
            try:
                code = child.wait(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if stop.requested and not asked:
                    child.send_signal(signal.SIGTERM)
                    asked = True
    return 0 if asked else code
