"""Errors in a run folder: one error message, exit code 2, and nothing is lost."""

import json
from pathlib import Path

import pytest
import torch

from tests.support.calls import stopped
from tests.support.moments import STEP, main_with_pause
from tests.support.processes import fork
from tests.support.runs import TINY, load_checkpoint
from uiat.cli import main
from uiat.io import write_sealed
from uiat.runs.run_folder import RunFolder


def test_a_folder_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, ready, go = tmp_path / "run", tmp_path / "ready", tmp_path / "go"
    command = ["train", "digits-resnet8-natural", *TINY, "--out", str(out)]
    first = fork(tmp_path / "first.txt", main_with_pause, command, STEP, 2, ready, go)
    first.wait_for(ready)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    error = stopped(capsys, "train", "--resume", str(out))
    assert f"{out} is in use by process {first.pid}" in error
    assert "already holds a run" in stopped(capsys, "train", "digits-resnet8-natural", *TINY, "--out", str(out))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    go.touch()
    code, output = first.end()
    assert code == 0, output
    assert main(["train", "--resume", str(out)]) == 0  # free again


def test_an_existing_run_is_not_overwritten(
    run_copy: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uiat.data.load_splits", lambda *_, **__: pytest.fail("the data is read first"))
    before = {path.name: path.read_bytes() for path in run_copy.path.iterdir()}
    error = stopped(capsys, "train", *TINY, "--out", str(run_copy.path))
    assert f"uiat train --resume {run_copy.path}" in error
    assert {path.name: path.read_bytes() for path in run_copy.path.iterdir()} == before


def test_a_default_folder_is_a_free_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["train", "digits-resnet8-natural", *TINY, "--train.epochs", "1", "--seed", "3"]) == 0
    names = sorted(path.name for path in Path("runs").iterdir())
    assert names == ["digits-resnet8-natural-s3", "digits-resnet8-natural-s3-2"]


def test_no_run_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["train", "--resume"], ["evaluate"]):
        assert "is not a run folder" in stopped(capsys, *command, str(tmp_path))


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert "cannot write the run folder" in stopped(capsys, "train", *TINY, "--out", str(tmp_path / "file" / "run"))


def test_resume_takes_no_other_folder(run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--out cannot be given" in stopped(capsys, "train", "--resume", str(run_copy.path), "--out", "elsewhere")


class Bomb:
    """A pickle that runs code when it is loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("damage", ["cut", "empty", "unrelated", "bomb", "no-schema"])
def test_a_damaged_checkpoint(damage: str, run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    whole, trace = run_copy.checkpoint.read_bytes(), run_copy.path / "trace"
    run_copy.previous.unlink()  # otherwise the run would resume from there
    if damage == "no-schema":
        torch.save({"model": {}}, run_copy.checkpoint)
    elif damage == "bomb":
        torch.save({"schema": 1, "model": Bomb(trace)}, run_copy.checkpoint)
    else:
        contents = {"cut": whole[: len(whole) // 2], "empty": b"", "unrelated": b"not a checkpoint"}
        run_copy.checkpoint.write_bytes(contents[damage])
    assert "is damaged or of another version" in stopped(capsys, "train", "--resume", str(run_copy.path))
    assert not trace.exists()
    assert main(["evaluate", str(run_copy.path), "--attacks", "natural", "--n", "5"]) == 0  # as the message advises


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_lost_table(damage: str, run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    table = run_copy.path / load_checkpoint(run_copy)["table_file"]
    run_copy.previous.unlink()  # otherwise the run would resume from there
    if damage == "missing":
        table.unlink()
    else:
        table.write_bytes(table.read_bytes()[:100])
    assert f"{table} is missing or damaged" in stopped(capsys, "train", "--resume", str(run_copy.path))


def test_a_checkpoint_of_another_network(run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    saved = json.loads(run_copy.config.read_text())
    saved["model"]["width"] = 5
    run_copy.config.write_text(json.dumps(saved))
    assert "model.width is 4 in the checkpoint and 5 in" in stopped(capsys, "train", "--resume", str(run_copy.path))
    earlier = load_checkpoint(run_copy)  # of a version without a configuration in it
    del earlier["provenance"]
    write_sealed(run_copy.checkpoint, earlier)
    assert "does not fit the run's configuration" in stopped(capsys, "train", "--resume", str(run_copy.path))
    assert "of another network" in stopped(capsys, "evaluate", str(run_copy.path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot read"),
        ("[]", "not of schema 1"),
        ('{"schema": 7}', "written by another version"),
        ('{"schema": 1, "kind": "Cnfig"}', "did you mean 'Config'?"),
        ('{"schema": 1, "kind": "Config"}', "is incomplete"),
        ('{"schema": 1, "kind": "Training"}', "does not hold a run's configuration"),
        ('{"schema": 1, "kind": "Training", "epoch": 3}', "has a field 'epoch'"),
    ],
)
def test_a_broken_configuration(
    text: str, message: str, run_copy: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    run_copy.config.write_text(text)
    for command in (["train", "--resume"], ["evaluate"]):
        assert message in stopped(capsys, *command, str(run_copy.path))
