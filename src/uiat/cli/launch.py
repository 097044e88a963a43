"""`uiat train --processes K`: the run on several processes of this machine, started by torchrun."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from uiat.cli.refusal import raise_refusal
from uiat.engine.signals import STOP_FILE, StopSignal

GRACE_SECONDS = 120.0
"""How long processes that were asked to stop may take for their step and their checkpoint."""


def launch(run: Path, processes: int, restarts: int, flags: list[str]) -> int:
    """Run `uiat train --resume RUN` under torchrun; a process that dies is started again up to `restarts` times.

    A stop that this process is asked for reaches all of them: they save and end, and that is a success. A mistake that
    a person must mend is not tried again: it is raised here.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    count = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    command = [*torchrun, *count, "-m", "uiat", "train", "--resume", str(run), *flags]
    threads = str(max(1, (os.cpu_count() or 1) // processes))
    with TemporaryDirectory() as folder, StopSignal() as stop:
        file = Path(folder) / "stop"
        environment = {"OMP_NUM_THREADS": threads, **os.environ, STOP_FILE: str(file)}
        # A session of their own: a Ctrl-C reaches this process alone. A signal to torchrun would make it end with a
        # traceback; its processes look for the file instead, save, and end well.
        child = subprocess.Popen(command, env=environment, start_new_session=True)
        while True:
            try:
                code = child.wait(timeout=0.2)
                raise_refusal(file)
                return code
            except subprocess.TimeoutExpired:
                if stop.requested:
                    file.touch()
                    code = _let_end(child)
                    raise_refusal(file)
                    return code


def _let_end(child: subprocess.Popen[bytes]) -> int:
    try:
        return child.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGTERM)
        child.wait()
        return 0
