"""Commands in processes that die, and how to begin again."""

import json
import random
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.moments import LINE, RENAME, STEP
from tests.support.processes import spawn

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


@dataclass(frozen=True)
class End:
    """How the processes of a job ended."""

    codes: list[int]
    stuck: int
    """How many did not notice that another had died."""
    seconds: float
    words: str

    @property
    def finished(self) -> bool:
        return all(code == 0 for code in self.codes)

    @property
    def killed(self) -> bool:
        return -signal.SIGKILL in self.codes

    @property
    def cut(self) -> bool:
        return -signal.SIGXFSZ in self.codes


class Warm:
    """An interpreter that has everything loaded, and forks."""

    def __init__(self, *first: str):
        self.process: subprocess.Popen[str] = spawn("tests.support.warm", *first)
        assert self._answer() == {"codes": [0]}, self.process.communicate()

    def run(
        self,
        args: list[str],
        *,
        world: int = 1,
        cause: dict[str, Any] | None = None,
        rank: int = 0,
        starved: bool = False,
    ) -> End:
        """Run a command; `rank` dies of `cause`, and with `starved` gloo's threads hardly run in the other ranks."""
        assert self.process.stdin is not None
        job = {"args": args, "world": world, "rank": rank, "cause": cause, "starved": starved}
        print(json.dumps(job), file=self.process.stdin, flush=True)
        return End(**self._answer())

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline()) and not line.startswith('{"codes"'):
            pass
        return json.loads(line) if line else None

    def close(self) -> None:
        self.process.communicate("", timeout=30)


def train(method: str, saving: str, out: Path) -> list[str]:
    """Return the command that begins a run, or goes on with it once it is there."""
    if (out / "config.json").exists():
        return ["train", "--resume", str(out), "--device", "cpu"]
    minutes = ["--train.checkpoint-minutes", SAVING[saving]]
    return ["train", f"digits-resnet8-{method}", *TINY, *METHODS[method], *minutes, "--out", str(out)]


def random_cause(chance: random.Random, seconds: float, calls: dict[str, int], largest: int) -> dict[str, Any]:
    """Choose a death: at a moment, around a call, or within a write."""
    how = chance.choices(("time", "call", "byte"), (4, 5, 1))[0]
    if how == "time":
        return {"how": how, "after": chance.uniform(0.01, seconds)}
    if how == "byte":
        return {"how": how, "number": chance.randint(3000, largest)}
    target = chance.choice(sorted(calls))
    number = chance.randint(1, calls[target])
    return {"how": how, "moment": chance.choice(("before", "after")), "target": target, "number": number}
