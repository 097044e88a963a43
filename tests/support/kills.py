"""Commands that are killed repeatedly: how they are killed, how they end, and counts over all tests."""

import os
import random
import resource
import signal
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.moments import LINE, RENAME, STEP, at_call, kill
from tests.support.processes import fork, ranks
from tests.support.runs import differences, snapshot
from uiat.cli import main
from uiat.runs.run_folder import RunFolder

TINY = [
    *("--data.subset", "72", "--data.validation", "12", "--data.test-subset", "40", "--data.crop", "1", "--data.flip"),
    *("--model.width", "4", "--model.blocks", "1", "1", "--train.epochs", "3", "--train.batch-size", "16"),
    *("--train.schedule.lr", "0.1", "--train.log-every", "3", "--validate.steps", "1", "--device", "cpu"),
]
"""60 training images, 4 steps an epoch, 12 steps a run."""
METHODS = {
    "uiat": ["--method.attack.steps", "1", "--method.momentum.start", "2"],
    "uiat-oneoff": ["--method.attack.steps", "1", "--method.one-off.epoch", "2"],
    "trades": ["--method.attack.steps", "1"],
}
SAVING = {"by-epoch": "10", "by-step": "0"}
"""Minutes between checkpoints within an epoch: none in so short a run, or one after every step."""
SYNC = "os.fsync"
LEDGER = "uiat.evaluation.ledger.write_tensors"
CALLS = {STEP: 12, LINE: 7, RENAME: 30, SYNC: 60}
"""Where a training process may die, and about how often it comes there."""
EVALUATION = {LEDGER: 12, RENAME: 14, SYNC: 28}
LARGEST = 37_000
"""Bytes of a checkpoint: a death within a write falls anywhere up to there."""
PATIENCE = 60.0
"""Seconds that the other ranks have to end after the first one."""


def train(method: str, saving: str, out: Path) -> list[str]:
    """Return the command that starts a run, or resumes an existing one."""
    if (out / "config.json").exists():
        return ["train", "--resume", str(out), "--device", "cpu"]
    minutes = ["--train.checkpoint-minutes", SAVING[saving]]
    return ["train", f"digits-resnet8-{method}", *TINY, *METHODS[method], *minutes, "--out", str(out)]


def random_cause(chance: random.Random, seconds: float, calls: dict[str, int], largest: int) -> dict[str, Any]:
    """Choose a kill: at a time, around a call, or within a write."""
    how = chance.choices(("time", "call", "byte"), (4, 5, 1))[0]
    if how == "time":
        return {"how": how, "after": chance.uniform(0.01, seconds)}
    if how == "byte":
        return {"how": how, "number": chance.randint(3000, largest)}
    target = chance.choice(sorted(calls))
    number = chance.randint(1, calls[target])
    return {"how": how, "moment": chance.choice(("before", "after")), "target": target, "number": number}


@dataclass(frozen=True)
class End:
    """How the processes of a command ended."""

    codes: list[int]
    stuck: int
    """How many did not notice that another had died."""
    seconds: float
    output: str

    @property
    def finished(self) -> bool:
        return all(code == 0 for code in self.codes)

    @property
    def killed(self) -> bool:
        return -signal.SIGKILL in self.codes

    @property
    def cut(self) -> bool:
        return -signal.SIGXFSZ in self.codes


def run_command(
    args: list[str], *, world: int = 1, cause: dict[str, Any] | None = None, rank: int = 0, starved: bool = False
) -> End:
    """Run a command in forks; `rank` dies of `cause`, and with `starved` gloo's threads hardly run in the others."""
    _warm_up()

    def life(own: int) -> int:
        with ExitStack() as stack:
            if own == rank and cause is not None:
                stack.enter_context(_arranged(cause))
            elif starved:
                stack.enter_context(at_call(STEP, 2, starve, before=True))
            return main(args)

    began = time.monotonic()
    variables = ranks(world) if world > 1 else [{}]
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(own) for own in range(world)]
        children = [fork(log, life, own, **variables[own]).pid for own, log in enumerate(logs)]
        after = cause["after"] if cause is not None and cause["how"] == "time" else float("inf")
        codes, stuck = _watch(children, rank, began + after)
        output = "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)
    return End(codes, stuck, time.monotonic() - began, output)


@cache
def _warm_up() -> None:
    """Train once without faults, so that forks share imports and first calls."""
    with tempfile.TemporaryDirectory() as folder:
        assert main(train("uiat", "by-step", Path(folder) / "run")) == 0


def _arranged(cause: dict[str, Any]) -> AbstractContextManager[object]:
    """Within it, the process is killed at a call or at a byte; a kill at a time comes from outside."""
    if cause["how"] == "call":
        return at_call(cause["target"], cause["number"], kill, before=cause["moment"] == "before")
    if cause["how"] == "byte":  # the kernel ends the process within the write that passes this size
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if cause["how"] in ("byte", "limit"):  # for `limit` the system refuses that write
        resource.setrlimit(resource.RLIMIT_FSIZE, (cause["number"], cause["number"]))
    return nullcontext()


def starve() -> None:
    """Pin this process to one CPU, and give all other threads (gloo's) idle priority."""
    own = os.getpid()
    for thread in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(thread, {min(os.sched_getaffinity(own))})
        if thread != own:
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def _watch(children: list[int], rank: int, death: float) -> tuple[list[int], int]:
    """Wait for all, and kill one at its time; return exit codes and how many had to be killed because they hung."""
    codes: dict[int, int] = {}
    deadline, stuck = float("inf"), 0
    while len(codes) < len(children):
        now = time.monotonic()
        if now > death:
            death = float("inf")
            if children[rank] not in codes:
                os.kill(children[rank], signal.SIGKILL)
                # As torchrun does. Only the parent notices a process that is killed before the rendezvous; later on,
                # the others finish their step and notice it.
                for other in set(children) - {children[rank], *codes}:
                    os.kill(other, signal.SIGTERM)
        for child in set(children) - codes.keys():
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
                deadline = min(deadline, now + PATIENCE)
            elif now > deadline:
                os.kill(child, signal.SIGKILL)
                stuck, deadline = stuck + 1, float("inf")
        time.sleep(0.003)
    return [codes[child] for child in children], stuck


TIMES = {"restarted": "processes started again", "resumed": "the first new step saved"}
"""Seconds after a kill."""
COUNTED = {
    "kills": "processes ended by SIGKILL",
    "cut": "processes ended within a write",
    "resumes": "resumes",
    "restarts": "processes of `uiat train --processes 2` started again within 30 seconds",
    "damaged": "damaged files met",
    "refused": "writes refused by a full disk",
    "runs": "runs and evaluations brought to their end",
    "equal": "of these, in the state of an unbroken one",
    "lost": "runs lost",
}


class Tally:
    """Counts of one test, which the report carries to the main process."""

    def __init__(self, node: pytest.Item):
        self.node = node

    def add(self, name: str, count: int = 1) -> None:
        assert name in COUNTED
        self.node.user_properties.append((name, count))

    def time(self, name: str, seconds: float) -> None:
        assert name in TIMES
        self.node.user_properties.append((name, seconds))

    def end(self, end: End) -> None:
        """Count how a command ended; any end but a kill or a success is an error."""
        assert end.stuck == 0, end.output
        self.add("kills", int(end.killed))
        self.add("cut", int(end.cut))
        if not (end.finished or end.killed or end.cut):
            self.add("lost")
            raise AssertionError(end.output)

    def equal(self, odd: list[str], runs: int = 1) -> None:
        """Count finished runs, and assert that they equal the uninterrupted ones."""
        self.add("runs", runs)
        self.add("equal", 0 if odd else runs)
        assert odd == []

    def compare(self, path: Path, expected: dict[str, Any], tolerance: float = 0.0) -> None:
        """Compare a run with the snapshot of another; a kill right after the last checkpoint leaves an old table."""
        odd = differences(snapshot(RunFolder.open(path)), expected, tolerance)
        self.equal([name for name in odd if not name.startswith("/abandoned/")])


class Unbroken:
    """Uninterrupted runs, each made once."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.get = cache(self._get)

    def _get(self, method: str, saving: str, world: int = 1) -> tuple[dict[str, Any], float]:
        path = self.folder / f"{method}-{saving}-{world}"
        end = run_command(train(method, saving, path), world=world)
        assert end.finished, end.output
        return snapshot(RunFolder.open(path)), end.seconds
