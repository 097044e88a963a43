"""`uiat train --processes K`: a run on several processes of this machine, started by torchrun.

A `UserError` in one of the processes is reported once, and torchrun does not restart them for it. Nothing slow is
imported here, because `main` imports this module before any command.
"""

import os
import signal
import subprocess
from pathlib import Path

from uiat.cli.streams import print_error
from uiat.engine.signals import GRACE_SECONDS, STOP_FILE, StopSignal, python_module, start_child, stop_file
from uiat.errors import Resumable, UserError


def cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def launch(run: Path, processes: int, restarts: int, flags: list[str]) -> int:
    """Run `uiat train --resume RUN` under torchrun, which restarts a worker that dies up to `restarts` times.

    A signal that asks this process to stop reaches all workers: they save and exit, and the exit code is the signal's.
    A `UserError` of a worker is raised here, without a restart.
    """
    torchrun = python_module("torch.distributed.run", "--standalone", "--log-dir", os.devnull)
    count = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    worker = python_module("uiat", "train", "--resume", str(run), *flags)
    environment = {"OMP_NUM_THREADS": str(max(1, cores() // processes)), "PYTHONUNBUFFERED": "1", **os.environ}
    # On a signal torchrun would end with a traceback; its workers check for the file instead, save, and exit.
    with (
        stop_file() as file,
        StopSignal() as stop,
        start_child([*torchrun, *count, "--no-python", "--", *worker], file, environment) as child,
    ):
        code = _wait(child, stop, file)
        raise_refusal(file)
        return stop.exit_code if stopped_file(file).exists() or (code and stop.requested) else code


def _wait(child: subprocess.Popen[bytes], stop: StopSignal, file: Path) -> int:
    """Return torchrun's exit code; create the file when this process is asked to stop."""
    while True:
        try:
            return child.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            if stop.requested:
                break
    file.touch()
    try:
        return child.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGTERM)
        return child.wait()


def stopped_file(stop_file: str | Path) -> Path:
    """Return the file that marks a training as stopped early, beside the one that requests the stop."""
    return Path(f"{stop_file}.stopped")


def stopped(stop: StopSignal) -> int:
    """Return the exit code of a training that was stopped before its end, the signal's.

    A worker of `uiat train --processes` creates a file for the launcher, which exits with that code; the worker exits
    with 0, because torchrun treats any other code as a crash and restarts it.
    """
    stop_file = os.environ.get(STOP_FILE)
    if stop_file is None:
        return stop.exit_code
    if os.path.isdir(os.path.dirname(stop_file)):  # else the launcher was interrupted twice, and is gone
        stopped_file(stop_file).touch()
    return 0


def refusal_file(stop_file: str) -> Path:
    """Return the file with the error message of a worker, beside the one that requests the stop."""
    return Path(f"{stop_file}.refused")


def refused() -> bool:
    """Whether a worker of this launch has reported an error, or the launcher is gone."""
    stop_file = os.environ.get(STOP_FILE)
    return stop_file is not None and (refusal_file(stop_file).exists() or not Path(stop_file).parent.exists())


def refuse(error: UserError) -> int:
    """Report an error and return the exit code.

    Under `uiat train --processes` the first worker writes the message to a file; the launcher prints it and exits with
    code 2. Workers exit with 0, because torchrun treats any other code as a crash and restarts them. Under torchrun
    alone the first process of each machine prints the message: machines may differ in their files.
    """
    stop_file = os.environ.get(STOP_FILE)
    if stop_file is None or "LOCAL_RANK" not in os.environ:  # no launch, or a worker of `uiat reproduce`
        return print_error(str(error), 2) if os.environ.get("LOCAL_RANK", "0") == "0" else 2
    try:
        with refusal_file(stop_file).open("x", encoding="utf-8") as file:
            file.write(f"{'resumable' if isinstance(error, Resumable) else ''}\n{error}")
    except (FileExistsError, FileNotFoundError):  # another worker has reported it, or the launcher is gone
        pass
    except OSError:  # a full disk
        print_error(str(error), 2)
    return 0


def raise_refusal(stop_file: Path) -> None:
    """Raise the error that a worker has reported, if any."""
    file = refusal_file(str(stop_file))
    if file.exists():
        kind, _, message = file.read_text(encoding="utf-8").partition("\n")
        if not message:
            raise Resumable("a worker failed without reporting an error; see its output above.")
        raise (Resumable if kind else UserError)(message)
