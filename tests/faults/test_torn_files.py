"""Checkpoints and tables truncated or with flipped bits: detected, and the run resumes from the previous one."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.kills import Tally
from tests.support.runs import CPU, begin, resume_run, snapshot, splits, tiny
from uiat.engine.setup import build_state
from uiat.runs.checkpoint import Checkpointer
from uiat.runs.run_folder import RunFolder

Damage = Callable[[bytes, int], bytes]
CONFIG = tiny("uiat")
DAMAGES: dict[str, Damage] = {
    "cut": lambda content, at: content[:at],
    "flip": lambda content, at: content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :],
    "zeros": lambda content, at: content[:at] + bytes(min(512, len(content) - at)) + content[at + 512 :],
    "longer": lambda content, at: content + content[at : at + 7],
}


@dataclass(frozen=True)
class Finished:
    """A run and its snapshot."""

    run: RunFolder
    state: dict[str, Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    run = begin(CONFIG, tmp_path_factory.mktemp("finished") / "run")
    return Finished(run, snapshot(run))


@pytest.fixture
def run(finished: Finished, tmp_path: Path) -> RunFolder:
    return RunFolder.open(shutil.copytree(finished.run.path, tmp_path / "run"))


def victim(run: RunFolder, name: str) -> Path:
    table = str(torch.load(run.checkpoint, weights_only=True)["table_file"])
    return {"checkpoint": run.checkpoint, "table": run.path / table}[name]


def offsets(size: int, count: int) -> list[int]:
    """Return offsets in every region: all edges, and random ones in between."""
    middle = random.Random(size).sample(range(size), min(count, size))
    return sorted({*range(16), *range(size - 110, size), *middle})


def is_noticed(run: RunFolder) -> bool:
    """Load as a resume does; return whether the previous checkpoint was used, which is one epoch behind."""
    state = build_state(CONFIG, splits().spec, CPU, None)
    checkpoints = Checkpointer(run)
    assert checkpoints.load(state, CPU)
    assert bool(checkpoints.notices) == (state.epoch == CONFIG.train.epochs)
    return bool(checkpoints.notices)


@pytest.mark.faults
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["checkpoint", "table"])
def test_damage_anywhere_is_noticed(name: str, damage: str, run: RunFolder, tally: Tally) -> None:
    path = victim(run, name)
    content = path.read_bytes()
    for at in offsets(len(content), 60):
        torn = DAMAGES[damage](content, at)
        if torn == content:  # zeros where there were zeros
            continue
        path.write_bytes(torn)
        tally.add("damaged")
        assert is_noticed(run), f"{damage} at byte {at} of {len(content)}"
    path.write_bytes(content)
    assert not is_noticed(run)


@pytest.mark.parametrize("share", [0.0, *(pytest.param(s, marks=pytest.mark.faults) for s in (0.2, 0.5, 0.9, 0.999))])
@pytest.mark.parametrize("damage", ["cut", "flip"])
@pytest.mark.parametrize("name", ["checkpoint", "table"])
def test_the_run_ends_in_the_same_bits(
    name: str, damage: str, share: float, run: RunFolder, finished: Finished, tally: Tally
) -> None:
    path = victim(run, name)
    content = path.read_bytes()
    path.write_bytes(DAMAGES[damage](content, int(share * len(content))))
    tally.add("damaged")
    tally.add("resumes")
    assert resume_run(run)
    tally.compare(run.path, finished.state)
    assert not is_noticed(run)  # everything is complete again
