"""Commands on a finished run: other data, suggested commands, concurrent evaluations, names in any script."""

import json
import shlex
import shutil
import threading
from pathlib import Path

import pytest

from tests.support.calls import call, refused
from tests.support.data_files import fill
from tests.support.processes import fork
from uiat.cli import main
from uiat.errors import quoted
from uiat.runs.run_folder import RunFolder

NATURAL = ("--attacks", "natural")
SMALL = ["--model.width", "2", "--train.epochs", "1", "--validate.steps", "1"]


@pytest.fixture
def here(finished_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run and photos."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "data"))
    shutil.copytree(finished_run.path, "run")
    fill(tmp_path / "photos", {"a": 6, "b": 6})
    return tmp_path


def test_splits_of_the_run_apply_to_its_own_data_only(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = ["--data.subset", "9", "--data.validation", "2", "--data.test-subset", "1"]
    assert call(capsys, "train", "--data", "photos", *cut, *SMALL, "--out", "own").code == 0
    fill(here / "fewer", {"a": 4, "b": 4})
    for name, n in (("fewer", 2), ("photos", 1)):
        assert call(capsys, "evaluate", "own", "--data", name, *NATURAL).code == 0
        entry = json.loads(Path("own/result.json").read_text(encoding="utf-8"))["evaluations"][-1]
        assert (Path(entry["data"]).name, entry["n"]) == (name, n)


def test_suggested_commands_can_be_copied(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = "ein Lauf 猫's"
    shutil.copytree("run", run)
    line = call(capsys, "export", run).out.splitlines()[-1]
    assert shlex.split(line.partition("next: ")[2]) == ["uiat", "evaluate", run]
    assert call(capsys, "evaluate", run, *NATURAL, "--json", "a b ü.json").code == 0
    line = call(capsys, "train", "--resume", run).out.splitlines()[-1]
    assert line == f"done; next: uiat evaluate {quoted(run)}"
    message = refused(capsys, "train", "--data.subset", "72", "--data.validation", "12", "--out", run)
    assert shlex.split(message.split("`")[1]) == ["uiat", "train", "--resume", run]
    out = call(capsys, "data", "pack", "photos", "--out", "ab c.npz").out
    assert out == "packed; next: uiat train --data 'ab c.npz' --data.test 'ab c-test.npz'\n"


def test_two_threads_add_evaluations(here: Path) -> None:
    """Both results are kept: the second thread waits."""

    def add() -> None:
        with RunFolder("run").changed_card() as card:
            card["evaluations"].append({"attack": "second"})

    run, other = RunFolder("run"), threading.Thread(target=add)
    with run.changed_card() as card:
        other.start()
        other.join(timeout=0.2)
        card["evaluations"].append({"attack": "first"})
    other.join(timeout=60)
    assert [entry["attack"] for entry in run.read_card()["evaluations"]] == ["first", "second"]


def test_two_processes_evaluate(here: Path) -> None:
    """Both entries are kept, in either order."""
    attacks = ("natural", "fgsm")
    args = ["evaluate", "run", "--n", "4", "--device", "cpu", "--attacks"]
    started = [fork(here / f"{attack}.txt", main, [*args, attack]) for attack in attacks]
    assert [process.end()[0] for process in started] == [0] * len(attacks)
    found = [entry["attack"] for entry in RunFolder("run").read_card()["evaluations"] if entry.get("n") == 4]
    assert sorted(found) == sorted(attacks)


def test_names_in_any_script(here: Path) -> None:
    fill(here / "tiere", {"猫": 6, "قطة": 6, "🐈": 6})
    assert main(["train", "--data", "tiere", *SMALL, "--out", "läufe 猫"]) == 0
    assert main(["inverse", "läufe 猫", "--n", "3", "--passes", "1"]) == 0
    assert main(["curves", "läufe 猫", "--n", "3", "--grid", "0"]) == 0
    assert Path("läufe 猫/inverse/inverse.png").is_file()
