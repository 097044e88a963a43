"""Data that is damaged while a run is stopped: one error message, and with the data restored the run resumes."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.kills import TINY, Tally, run_command
from tests.support.moments import STEP
from tests.support.runs import snapshot
from uiat.cli import main
from uiat.runs.run_folder import RunFolder


def write(path: Path) -> None:
    chance = np.random.default_rng(0)
    image = chance.integers(0, 256, (250, 8, 8), dtype=np.uint8)
    np.savez(path, image=image, label=np.arange(250) % 5)


@pytest.mark.parametrize(
    "damage",
    ["cut", *(pytest.param(name, marks=pytest.mark.faults) for name in ("flip", "empty", "unrelated", "missing"))],
)
def test_a_damaged_data_file(damage: str, tally: Tally, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, out, whole = tmp_path / "own.npz", tmp_path / "run", tmp_path / "whole"
    write(data)
    begin = ["train", "digits-resnet8-sat", *TINY, "--data.name", str(data), "--method.attack.steps", "1"]
    end = run_command([*begin, "--out", str(whole)])
    assert end.finished, end.output
    cause = {"how": "call", "moment": "after", "target": STEP, "number": 6}
    tally.end(run_command([*begin, "--out", str(out)], cause=cause))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    content = data.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
    changed = {"cut": content[:middle], "flip": flipped, "empty": b"", "unrelated": b"nothing of the kind"}
    data.unlink() if damage == "missing" else data.write_bytes(changed[damage])
    tally.add("damaged")
    capfd.readouterr()
    assert main(["train", "--resume", str(out)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert str(data) in line
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    data.write_bytes(content)
    tally.add("resumes")
    assert run_command(["train", "--resume", str(out)]).finished
    tally.compare(out, snapshot(RunFolder.open(whole)))
