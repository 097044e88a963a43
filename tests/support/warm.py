"""A warm interpreter that runs commands in forks of itself and lets them die.

`python -m tests.support.warm ARGS…` first runs the command ARGS, unharmed, so that imports and first calls are paid for
once. Then it reads jobs from its input, one of `tests.support.jobs.Job` as JSON a line, and prints for each how its
processes ended. With more than one process they are the ranks of one run, as torchrun would start them.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch

from tests.support.moments import STEP, at_call, kill
from tests.support.ranks import free_port
from uiat.cli import main

PATIENCE = 60.0
"""Seconds that the other ranks have to end after the first one."""


def arranged(cause: dict[str, Any]) -> AbstractContextManager[object]:
    """Within it, death waits at a call, or at a byte; a death in time comes from outside."""
    if cause["how"] == "call":
        return at_call(cause["target"], cause["number"], kill, before=cause["moment"] == "before")
    if cause["how"] == "byte":  # the kernel ends the process within the write that passes this size
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (cause["number"], cause["number"]))
    if cause["how"] == "limit":  # the system refuses the write that passes this size
        resource.setrlimit(resource.RLIMIT_FSIZE, (cause["number"], cause["number"]))
    return nullcontext()


def starve() -> None:
    """Pin this process to one CPU, where threads other than its own (gloo's) run only when nothing else wants to."""
    own = os.getpid()
    for thread in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(thread, {min(os.sched_getaffinity(own))})
        if thread != own:
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def start(job: dict[str, Any], rank: int, port: int, log: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        if job["world"] > 1:
            shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(job["world"])}
            os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))
        cause = job["cause"] if job["cause"] and job["rank"] == rank else {"how": "none"}
        with ExitStack() as stack:
            stack.enter_context(arranged(cause))
            if job["starved"] and job["rank"] != rank:
                stack.enter_context(at_call(STEP, 2, starve, before=True))
            code = main(job["args"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def watch(children: list[int], job: dict[str, Any], began: float) -> tuple[list[int], int]:
    """Wait for all; return their exit codes and how many had to be ended long after another."""
    codes: dict[int, int] = {}
    deadline, stuck = float("inf"), 0
    after = job["cause"]["after"] if job["cause"] and job["cause"]["how"] == "time" else float("inf")
    while len(codes) < len(children):
        now = time.monotonic()
        if now - began > after:
            after = float("inf")
            if children[job["rank"]] not in codes:
                os.kill(children[job["rank"]], signal.SIGKILL)
                # As torchrun does. A process that is killed so early that the others have not met it can only be
                # missed by who started it; later on, the others finish their step and notice by themselves.
                for other in set(children) - {children[job["rank"]], *codes}:
                    os.kill(other, signal.SIGTERM)
        for child in children:
            if child in codes:
                continue
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
                deadline = min(deadline, now + PATIENCE)
            elif now > deadline:
                os.kill(child, signal.SIGKILL)
                stuck, deadline = stuck + 1, float("inf")
        time.sleep(0.003)
    return [codes[child] for child in children], stuck


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Return how a job ended."""
    port, began = free_port() if job["world"] > 1 else 0, time.monotonic()
    with tempfile.TemporaryFile() as log:
        children = [start(job, rank, port, log.fileno()) for rank in range(job["world"])]
        codes, stuck = watch(children, job, began)
        log.seek(0)
        words = log.read().decode("utf-8", "replace")
    return {"codes": codes, "stuck": stuck, "seconds": time.monotonic() - began, "words": words}


if __name__ == "__main__":
    torch.set_num_threads(1)
    first = main(sys.argv[1:]) if len(sys.argv) > 1 else 0
    print(json.dumps({"codes": [first]}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
