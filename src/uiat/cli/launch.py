"""`uiat train --processes K`: the run on several processes of this machine, started by torchrun.

A mistake that one of the processes meets is said once, and torchrun does not try the same again. Nothing slow is
imported here: `main` needs it before any command.
"""

import os
import signal
import subprocess
from pathlib import Path

from uiat.cli.streams import print_error
from uiat.engine.signals import GRACE_SECONDS, STOP_FILE, StopSignal, python_module, start_child, stop_file
from uiat.errors import Resumable, UserError


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def launch(run: Path, processes: int, restarts: int, flags: list[str]) -> int:
    """Run `uiat train --resume RUN` under torchrun; a process that dies is started again up to `restarts` times.

    A stop that this process is asked for reaches all of them: they save and end, and the exit code is the signal's. A
    mistake that a person must mend is not tried again: it is raised here.
    """
    torchrun = python_module("torch.distributed.run", "--standalone", "--log-dir", os.devnull)
    count = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    worker = python_module("uiat", "train", "--resume", str(run), *flags)
    environment = {"OMP_NUM_THREADS": str(max(1, cores() // processes)), "PYTHONUNBUFFERED": "1", **os.environ}
    # A signal to torchrun would make it end with a traceback; its processes look for the file instead, save, and end.
    with (
        stop_file() as file,
        StopSignal() as stop,
        start_child([*torchrun, *count, "--no-python", "--", *worker], file, environment) as child,
    ):
        code = _wait(child, stop, file)
        raise_refusal(file)
        return stop.exit_code if stopped_file(file).exists() or (code and stop.requested) else code


def _wait(child: subprocess.Popen[bytes], stop: StopSignal, file: Path) -> int:
    """Return torchrun's exit code; make the file when this process is asked to stop."""
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
    """Return the file, beside the one that asks for a stop, which says that the training was stopped early."""
    return Path(f"{stop_file}.stopped")


def stopped(stop: StopSignal) -> int:
    """Return the exit code of a training that was stopped: it is not finished, and no command may take it for that.

    Under `uiat train --processes` it leaves a file for the launcher, which ends with that code; the processes end with
    0, because torchrun takes any other code for a death and starts them again.
    """
    stop_file = os.environ.get(STOP_FILE)
    if stop_file is None:
        return stop.exit_code
    if os.path.isdir(os.path.dirname(stop_file)):  # else the launcher was interrupted a second time, and is gone
        stopped_file(stop_file).touch()
    return 0


def refusal_file(stop_file: str) -> Path:
    """Return the file, beside the one that asks for a stop, which says why the run cannot go on as it is."""
    return Path(f"{stop_file}.refused")


def refused() -> bool:
    """Whether a process of this launch has met a mistake that a person must mend, or the launcher is gone."""
    stop_file = os.environ.get(STOP_FILE)
    return stop_file is not None and (refusal_file(stop_file).exists() or not Path(stop_file).parent.exists())


def refuse(error: UserError) -> int:
    """Say what is wrong and return the exit code.

    Under `uiat train --processes` the first process leaves the sentence for the launcher, which says it and ends with
    code 2; the processes end with 0, because torchrun takes any other code for a death and starts them again. Under
    torchrun alone the first process of each machine speaks: machines may differ in their files.
    """
    stop_file = os.environ.get(STOP_FILE)
    if stop_file is None or "LOCAL_RANK" not in os.environ:  # no launch, or a worker of `uiat reproduce`
        return print_error(str(error), 2) if os.environ.get("LOCAL_RANK", "0") == "0" else 2
    try:
        with refusal_file(stop_file).open("x", encoding="utf-8") as file:
            file.write(f"{'resumable' if isinstance(error, Resumable) else ''}\n{error}")
    except (FileExistsError, FileNotFoundError):  # another process has said it, or the launcher is gone
        pass
    except OSError:  # a full disk
        print_error(str(error), 2)
    return 0


def raise_refusal(stop_file: Path) -> None:
    """Raise the mistake that a process of a launch has met, if one has."""
    file = refusal_file(str(stop_file))
    if file.exists():
        kind, _, sentence = file.read_text(encoding="utf-8").partition("\n")
        if not sentence:
            raise Resumable("a process of this run could not go on, and could not write why: its words are above.")
        raise (Resumable if kind else UserError)(sentence)
