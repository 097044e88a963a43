"""`uiat train --processes 2` as a user starts it: if one of its processes is killed, it is restarted in time.

In time means: both processes run again at most 30 seconds after the kill. torchrun ends a hanging survivor after 30
seconds, so that would be late. The time until training resumes (the first step of the new processes is saved) is
reported, not judged, since it is mostly the import of torch.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.kills import Tally, train
from tests.support.processes import finish, spawn
from tests.support.runs import snapshot
from uiat.cli.launch import cores
from uiat.runs.run_folder import RunFolder

SECONDS, PATIENCE, TOLERANCE = 30.0, 300.0, 1e-6
PROC = Path("/proc")
pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not (PROC / "self" / "environ").exists(), reason="needs /proc to find the processes"),
    pytest.mark.skipif(cores() < 2, reason="needs two cores"),
]


def start(out: Path) -> subprocess.Popen[str]:
    return spawn("uiat", *train("uiat", "by-step", out), "--train.epochs", "20", "--processes", "2")


def parent(process: Path) -> str:
    return (process / "stat").read_text().rpartition(")")[2].split()[1]


def workers(launcher: int) -> dict[str, int]:
    """Return the processes that torchrun has started for a launcher, by rank."""
    found: dict[str, int] = {}
    for process in PROC.glob("[0-9]*"):
        try:
            if parent(PROC / parent(process)) == str(launcher):
                variables = (process / "environ").read_bytes().split(b"\0")
                found |= {word.decode(): int(process.name) for word in variables if word.startswith(b"RANK=")}
        except OSError:  # it has ended, or is not ours
            continue
    return found


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], what: str) -> float:
    """Return when it becomes true; the command must not end before."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, f"ended before {what}: {finish(process)}"
        assert time.monotonic() < until, f"timed out waiting for {what}"
        time.sleep(0.01)
    return time.monotonic()


def lines(out: Path) -> int:
    metrics = RunFolder(out).metrics
    return metrics.read_text(encoding="utf-8").count("\n") if metrics.exists() else 0


def saved(out: Path) -> int:
    checkpoint = RunFolder(out).checkpoint
    return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("whole") / "run"
    code, _, said = finish(start(out))
    assert code == 0, said
    return snapshot(RunFolder.open(out))


@pytest.mark.parametrize("number", range(10))
def test_a_killed_worker_is_started_again(number: int, whole: dict[str, Any], tally: Tally, out: Path) -> None:
    chance = random.Random(f"worker {number}")
    process = start(out)
    wait_for(lambda: len(workers(process.pid)) == 2, process, "two workers")
    if number > 1:  # in the first two, one is killed before the rendezvous, during imports
        moment = chance.randint(1, 40)
        wait_for(lambda: lines(out) >= moment, process, f"line {moment}")
        time.sleep(chance.uniform(0, 0.1))
    old = workers(process.pid)
    os.kill(old[f"RANK={number % 2}"], signal.SIGKILL)
    killed = time.monotonic()

    def again() -> bool:
        new = workers(process.pid)
        return len(new) == 2 and not set(new.values()) & set(old.values())

    restarted = wait_for(again, process, "two new workers") - killed
    before = saved(out)
    resumed = wait_for(lambda: saved(out) != before, process, "a step that is saved") - killed
    tally.time("restarted", restarted)
    tally.time("resumed", resumed)
    code, _, said = finish(process)
    assert code == 0, said
    assert restarted <= SECONDS, said
    for name in ("kills", "resumes", "restarts"):
        tally.add(name)
    tally.compare(out, whole, TOLERANCE)
