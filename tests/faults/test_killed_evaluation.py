"""An evaluation that is killed at random moments resumes and gives the result of an uninterrupted one."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.support.kills import EVALUATION, Tally, random_cause, run_command, train
from tests.support.runs import differences, leaves
from uiat.runs.run_folder import read_json

TIMES = ("seconds", "environment")
SETS = [["natural", "pgd-3-2"], ["natural", "apgd-ce", "pgd-2"], ["pgd-4", "cw", "fab-t"]]


def evaluate(run: Path, attacks: list[str]) -> list[str]:
    flags = ["--n", "40", "--batch-size", "8", "--exact", "--device", "cpu", "--eps", "0.1"]
    return ["evaluate", str(run), "--attacks", *attacks, *flags, "--save-adversaries", str(run / "found.safetensors")]


def found(run: Path) -> dict[str, Any]:
    entries = read_json(run / "result.json")["evaluations"]
    facts = {entry["attack"]: {k: v for k, v in entry.items() if k not in TIMES} for entry in entries}
    assert not list(run.glob("evaluation-*")), "the ledger of a finished evaluation is left"
    return dict(leaves("", {**facts, **load_file(run / "found.safetensors")}))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    assert run_command(train("uiat", "by-epoch", path)).finished
    return path


@pytest.mark.parametrize("number", [0, *(pytest.param(k, marks=pytest.mark.faults) for k in range(1, 6))])
def test_killed_again_and_again(number: int, trained: Path, tally: Tally, tmp_path: Path) -> None:
    attacks, chance = SETS[number % len(SETS)], random.Random(f"evaluation {number}")
    whole = shutil.copytree(trained, tmp_path / "whole")
    end = run_command(evaluate(whole, attacks))
    assert end.finished, end.output
    expected, seconds, deaths, rounds = found(whole), end.seconds, 0, 0
    run = shutil.copytree(trained, tmp_path / "run0")
    while deaths < (3 if number == 0 else 8):
        end = run_command(evaluate(run, attacks), cause=random_cause(chance, seconds, EVALUATION, 9000))
        tally.add("resumes", int("resuming an interrupted evaluation" in end.output))
        tally.end(end)
        deaths += end.killed
        if end.finished:
            tally.equal(differences(found(run), expected))
            rounds += 1
            run = shutil.copytree(trained, tmp_path / f"run{rounds}")
    end = run_command(evaluate(run, attacks))
    tally.end(end)
    tally.equal(differences(found(run), expected))
