"""What can be wrong with a run's folder: one sentence, exit code 2, and nothing is lost."""

import json
import shutil
import time
from pathlib import Path

import pytest
import torch

from tests.engine.moments import STEP
from tests.engine.processes import finish, spawn
from tests.engine.runs import TINY, begin, load_checkpoint, tiny
from uiat.cli import main
from uiat.engine.run import RunFolder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return begin(tiny("uiat"), tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(finished: RunFolder, tmp_path: Path) -> RunFolder:
    """Return a copy of a run, to be damaged."""
    return RunFolder.open(shutil.copytree(finished.path, tmp_path / "run"))


def refusal(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Return the one sentence of a command that fails."""
    capsys.readouterr()
    assert main(list(args)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("uiat: ")
    return error


def test_a_folder_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, ready, go = tmp_path / "run", tmp_path / "ready", tmp_path / "go"
    words = ["wait", STEP, "2", "train", "digits-resnet8-natural", *TINY, "--out", str(out)]
    first = spawn("tests.engine.child", *words, READY=str(ready), GO=str(go))
    while not ready.exists():
        assert first.poll() is None, finish(first)
        time.sleep(0.02)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    error = refusal(capsys, "train", "--resume", str(out))
    assert f"{out} is in use by process {first.pid}" in error
    assert "already holds a run" in refusal(capsys, "train", "digits-resnet8-natural", *TINY, "--out", str(out))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    go.touch()
    code, _, err = finish(first)
    assert code == 0, err
    assert main(["train", "--resume", str(out)]) == 0  # free again


def test_an_existing_run_is_not_overwritten(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    error = refusal(capsys, "train", *TINY, "--out", str(run.path))
    assert f"uiat train --resume {run.path}" in error
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_a_default_folder_is_a_free_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["train", "digits-resnet8-natural", *TINY, "--train.epochs", "1", "--seed", "3"]) == 0
    names = sorted(path.name for path in Path("runs").iterdir())
    assert names == ["digits-resnet8-natural-s3", "digits-resnet8-natural-s3-2"]


def test_no_run_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["train", "--resume"], ["evaluate"]):
        assert "is not a run folder" in refusal(capsys, *command, str(tmp_path))


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert "cannot write the run folder" in refusal(capsys, "train", *TINY, "--out", str(tmp_path / "file" / "run"))


def test_resume_takes_no_other_folder(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--out cannot be given" in refusal(capsys, "train", "--resume", str(run.path), "--out", "elsewhere")


class Bomb:
    """What an attacker would hide in a pickle."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "bomb", "no-schema"])
def test_a_damaged_checkpoint(damage: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    whole, trace = run.checkpoint.read_bytes(), run.path / "trace"
    run.previous.unlink()  # with it the run would go on from there
    if damage == "no-schema":
        torch.save({"model": {}}, run.checkpoint)
    elif damage == "bomb":
        torch.save({"schema": 1, "model": Bomb(trace)}, run.checkpoint)
    else:
        contents = {"cut": whole[: len(whole) // 2], "empty": b"", "foreign": b"not a checkpoint"}
        run.checkpoint.write_bytes(contents[damage])
    assert "is damaged or of another version" in refusal(capsys, "train", "--resume", str(run.path))
    assert not trace.exists()
    run.checkpoint.unlink()
    assert main(["train", "--resume", str(run.path)]) == 0  # what the sentence advises


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_lost_table(damage: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    table = run.path / load_checkpoint(run)["table_file"]
    run.previous.unlink()  # with it the run would go on from there
    if damage == "missing":
        table.unlink()
    else:
        table.write_bytes(table.read_bytes()[:100])
    assert f"{table} is missing or damaged" in refusal(capsys, "train", "--resume", str(run.path))


def test_a_checkpoint_of_another_network(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    saved = json.loads(run.config.read_text())
    saved["model"]["width"] = 5
    run.config.write_text(json.dumps(saved))
    assert "does not fit the run's configuration" in refusal(capsys, "train", "--resume", str(run.path))
    assert "belongs to another" in refusal(capsys, "evaluate", str(run.path))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot read"),
        ("[]", "not of schema 1"),
        ('{"schema": 7}', "written by another version"),
        ('{"schema": 1, "kind": "Cnfig"}', "did you mean 'Config'?"),
        ('{"schema": 1, "kind": "Config"}', "is not whole"),
        ('{"schema": 1, "kind": "Training"}', "does not hold a run's configuration"),
        ('{"schema": 1, "kind": "Training", "epoch": 3}', "has a field 'epoch'"),
    ],
)
def test_a_broken_configuration(text: str, sentence: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.config.write_text(text)
    for command in (["train", "--resume"], ["evaluate"]):
        assert sentence in refusal(capsys, *command, str(run.path))
