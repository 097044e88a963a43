"""A run killed by SIGKILL at a random moment and resumed ends in the same bits as one that was never killed."""

import random
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.support.moments import LINE, RENAME, STEP, kill, main_at_call
from tests.support.processes import fork
from tests.support.runs import STEPS, TINY, assert_same, load_checkpoint, snapshot
from uiat.cli import main
from uiat.runs.run_folder import RunFolder

EPOCHS = 4
METHODS = {
    "uiat": [*TINY, "--method.attack.steps", "2", "--method.momentum.start", "3"],
    "uiat-oneoff": [*TINY, "--method.attack.steps", "2", "--method.one-off.epoch", "3"],
}
SAVING = {"by-epoch": "10", "by-step": "0"}
"""Minutes between checkpoints within an epoch: none in so short a run, or one after every step."""


def command(method: str, saving: str, out: Path) -> list[str]:
    minutes = ["--train.checkpoint-minutes", SAVING[saving]]
    recipe = ["train", f"digits-resnet8-{method}", *METHODS[method]]
    return [*recipe, "--train.epochs", str(EPOCHS), *minutes, "--out", str(out)]


def moments(method: str, saving: str) -> list[tuple[str, str, int]]:
    """Return three random steps, and two random moments of the writing."""
    chance = random.Random(f"{method} {saving}")
    steps = sorted(chance.sample(range(1, EPOCHS * STEPS + 1), 3))
    # A run renames its configuration, and at least last, table and checkpoint an epoch; it writes a line an epoch, and
    # one every third step.
    rename, line = chance.randint(2, 2 * EPOCHS), chance.randint(1, EPOCHS + EPOCHS * STEPS // 3)
    return [*(("after", STEP, step) for step in steps), ("before", RENAME, rename), ("after", LINE, line)]


@pytest.mark.faults
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_ends_in_the_same_bits(method: str, tmp_path: Path) -> None:
    jobs = [(saving, *moment) for saving in SAVING for moment in moments(method, saving)]
    folders = [tmp_path / "-".join(map(str, job)) for job in jobs]
    commands = [command(method, job[0], out) for job, out in zip(jobs, folders, strict=True)]
    assert main(command(method, "by-epoch", tmp_path / "first")) == 0
    for (_, when, target, number), args in zip(jobs, commands, strict=True):
        act = partial(main_at_call, args, target, number, kill, before=when == "before")
        code, words = fork(tmp_path / "words.txt", act).end()
        assert code == -signal.SIGKILL, words

    whole: dict[str, dict[str, object]] = {}
    for saving in SAVING:
        assert main(command(method, saving, tmp_path / saving)) == 0
        whole[saving] = snapshot(RunFolder.open(tmp_path / saving))
    assert_same(RunFolder.open(tmp_path / "first"), whole["by-epoch"])
    for (saving, _, target, number), out in zip(jobs, folders, strict=True):
        run = RunFolder.open(out)
        if target == STEP:
            assert place(run) == (number - 1 if saving == "by-step" else (number - 1) // STEPS * STEPS)
        assert main(["train", "--resume", str(out)]) == 0
        assert_same(run, whole[saving])


def place(run: RunFolder) -> int:
    """Return the steps that the last checkpoint of a run has seen."""
    if not run.checkpoint.exists():
        return 0
    saved = load_checkpoint(run)
    return (int(saved["epoch"]) - 1) * STEPS + int(saved["step"])
