"""Two processes of a run, one of which is killed: the other ends too, and both resume from the last checkpoint."""

import itertools
import os
import random
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.support.failing_network import run_process
from tests.support.kills import CALLS, LARGEST, METHODS, Tally, Unbroken, random_cause, run_command, train
from tests.support.moments import STEP
from tests.support.processes import fork_ranks
from tests.support.runs import differences, snapshot
from uiat.runs.run_folder import RunFolder

TOLERANCE, EPOCHS = 1e-6, 3


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("method", "saving"), [("uiat", "by-step"), ("uiat-oneoff", "by-epoch"), ("trades", "by-step")]
)
def test_a_rank_is_killed_again_and_again(
    method: str, saving: str, seed: int, unbroken: Unbroken, tally: Tally, tmp_path: Path
) -> None:
    expected, seconds = unbroken.get(method, saving, 2)
    chance, deaths = random.Random(f"ranks {method} {seed}"), 0
    places = (tmp_path / f"run{number}" for number in itertools.count())
    out = next(places)
    while deaths < 5:
        tally.add("resumes", int((out / "config.json").exists()))
        cause, rank = random_cause(chance, seconds, CALLS, LARGEST), chance.randint(0, 1)
        end = run_command(train(method, saving, out), world=2, cause=cause, rank=rank)
        tally.end(end)
        if end.finished:
            tally.compare(out, expected, TOLERANCE)
            out = next(places)
        else:
            deaths += 1
            if 0 in end.codes:  # the other had nothing left to do
                assert torch.load(RunFolder.open(out).checkpoint, weights_only=True)["epoch"] == EPOCHS + 1
    tally.add("resumes", int((out / "config.json").exists()))
    end = run_command(train(method, saving, out), world=2)
    assert end.finished, end.output
    tally.compare(out, expected, TOLERANCE)


@pytest.mark.faults
@pytest.mark.parametrize("rank", [0, 1])
def test_the_other_rank_notices(rank: int, tally: Tally, out: Path) -> None:
    cause = {"how": "call", "moment": "after", "target": STEP, "number": 6}
    end = run_command(train("uiat", "by-step", out), world=2, cause=cause, rank=rank)
    tally.end(end)
    assert (end.codes[rank], end.stuck) == (-9, 0), end.output
    assert end.codes[1 - rank] not in (0, -9)
    tally.add("resumes")
    assert run_command(train("uiat", "by-step", out), world=2).finished


@pytest.mark.faults
@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="needs Linux's idle priority")
@pytest.mark.parametrize("group", range(4))
def test_the_other_rank_ends_however_slow_gloo_is(group: int, tally: Tally, tmp_path: Path) -> None:
    """Forty deaths where a process that frees its gloo group hangs every second time (pytorch#56297)."""
    for number in range(10):
        rank, step = number % 2, 3 + (group + number) % 8
        cause = {"how": "call", "moment": "before", "target": STEP, "number": step}
        job = train("uiat", "by-step", tmp_path / str(number))
        end = run_command(job, world=2, cause=cause, rank=rank, starved=True)
        tally.end(end)
        assert end.codes[rank] == -9
        assert end.codes[1 - rank] > 0, end.output  # neither finished nor ended by a signal


@pytest.mark.faults
@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="needs Linux's idle priority")
def test_a_finished_rank_ends_however_slow_gloo_is(tmp_path: Path) -> None:
    """The state of the run outlives the process group here; before the fix, four of five hung."""
    for number in range(6):
        command = train("uiat", "by-step", tmp_path / f"run{number}")
        finish = partial(run_process, starved=True)
        for code, output in fork_ranks(tmp_path, 2, finish, "", 0, [], tmp_path / "end", command):
            assert code == 0, output


@pytest.mark.faults
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("worlds", [(2, 1, 2), (1, 2, 1)], ids=["2-1-2", "1-2-1"])
def test_the_number_of_processes_changes(
    method: str, worlds: tuple[int, int, int], tally: Tally, tmp_path: Path
) -> None:
    """Two runs that are killed after the same checkpoints, in different ways, end in the same state."""
    finals = []
    for moment, rank in (("before", 0), ("after", 1)):
        out = tmp_path / moment
        for world, step in zip(worlds[:2], (6, 3), strict=True):
            cause = {"how": "call", "moment": moment, "target": STEP, "number": step}
            end = run_command(train(method, "by-step", out), world=world, cause=cause, rank=min(rank, world - 1))
            tally.end(end)
            assert not end.finished
            tally.add("resumes")
        end = run_command(train(method, "by-step", out), world=worlds[2])
        assert end.finished, end.output
        finals.append(snapshot(RunFolder.open(out)))
    tally.equal(differences(finals[0], finals[1], TOLERANCE), runs=2)
    epochs = [line["epoch"] for line in RunFolder.open(out).read_metrics() if line["kind"] == "epoch"]
    assert epochs == [1, 2, 3]


@pytest.mark.faults
def test_all_ranks_resume_from_the_same_checkpoint(unbroken: Unbroken, tally: Tally, out: Path) -> None:
    cause = {"how": "call", "moment": "after", "target": STEP, "number": 7}
    tally.end(run_command(train("uiat", "by-step", out), world=2, cause=cause, rank=1))
    run = RunFolder.open(out)
    run.checkpoint.write_bytes(run.checkpoint.read_bytes()[:-1])
    tally.add("damaged")
    tally.add("resumes")
    end = run_command(train("uiat", "by-step", out), world=2)
    assert end.finished, end.output
    assert end.output.count("checkpoint.previous.pt, at epoch") == 1
    tally.compare(out, unbroken.get("uiat", "by-step", 2)[0], TOLERANCE)
    for path in (run.checkpoint, run.previous):
        path.write_bytes(b"nothing")
    end = run_command(train("uiat", "by-step", out), world=2)
    assert (end.codes, end.stuck) == ([2, 2], 0), end.output
    assert end.output.count("uiat: ") == 1
    assert "Traceback" not in end.output
