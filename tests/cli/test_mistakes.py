"""What a new user gets wrong with a finished run, with data and with tables: one sentence, and no work is lost."""

import json
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.calls import call, refused, refused_flag, stopped
from tests.support.pictures import fill
from uiat.cli import main
from uiat.errors import UserError, quoted
from uiat.runs.run_folder import RunFolder

NATURAL = ["--attacks", "natural"]


@pytest.fixture
def here(finished_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run, photos, an empty folder and a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "data"))
    shutil.copytree(finished_run.path, "run")
    fill(tmp_path / "photos", {"a": 6, "b": 6})
    Path("empty").mkdir()
    Path("file").write_text("mine")
    return tmp_path


MISTAKES = {
    "evaluate run --attacks": "--attacks is empty: give one or more of natural, fgsm, pgd-K",
    "evaluate run --json photos": "cannot write photos: give the path of a file, not of a folder.",
    "evaluate run --json new/": "cannot write new/: give the path of a file, not of a folder.",
    "evaluate run --json no/x.json": "cannot write no/x.json: there is no such folder, make it first.",
    "evaluate run --json file/x.json": "cannot write file/x.json: there is no such folder, make it first.",
    "evaluate run --json /proc/x.json": "cannot write /proc/x.json: ",
    "evaluate run --json ''": "cannot write a file without a name",
    "evaluate run --save-adversaries photos": "cannot write photos: give the path of a file, not of a folder.",
    "evaluate run --step -1": "--step is -1.0: give at least 0.",
    "evaluate run --step nan": "--step is nan: give at least 0.",
    "evaluate run --n -3": "--n is -3, but the test set has 40 images: give 1 to 40.",
    "evaluate run --n 999": "--n is 999, but the test set has 40 images: give 1 to 40.",
    "evaluate run --data": "no data set is given: give --data",
    "evaluate run --data nothing": "unknown data set 'nothing': known are ",
    "evaluate run --attacks pgd-0": "unknown attack 'pgd-0': did you mean 'pgd-20'?",
    "evaluate run --attacks apgd-ce+nix": "unknown attack 'apgd-ce+nix': did you mean 'apgd-ce'?",
    "evaluate run --data.test-subset 0": "data.test_subset is 0: give at least 1.",
    "evaluate run/config.json": "or give its run's folder run instead.",
    "evaluate run/best.safetensors": "or give its run's folder run instead.",
    "evaluate run/log.txt --model resnet8 --data digits": "run/log.txt is not a readable weights file",
    "evaluate photos": "photos is not a run folder (it has no config.json)",
    "evaluate nothing": "there is no nothing: give a run folder, or a weights file",
    "curves run --out file": "cannot write the folder file: file is a file; choose another --out.",
    "curves run --out file/deeper": "cannot write the folder file/deeper: ",
    "curves run --out /proc/x": "cannot write the folder /proc/x: ",
    "curves run --grid": "the grid is empty: give at least one ε",
    "curves run --against photos": "photos is not a run folder",
    "curves run --n 1": "two halves need at least two images: give --n 2 or more.",
    "inverse run --out file": "cannot write the folder file: file is a file; choose another --out.",
    "inverse run --out /proc/x/y": "cannot write the folder /proc/x/y: ",
    "inverse run --beta nan": "--beta is nan",
    "inverse run --beta -1": "--beta is -1.0",
    "inverse run --passes 0": "--passes is 0: give at least 1.",
    "export run --out file": "cannot write the folder file: a file has that name; choose another --out.",
    "export run/best.safetensors": "run/best.safetensors is not a run folder",
    "export empty": "empty is not a run folder",
    "data info photos --json photos": "cannot write photos: give the path of a file, not of a folder.",
    "data info photos --test-fraction 2": "--data.test-fraction is 2.0",
    "data info data.size.npz": "there is no file data.size.npz",
    "data info photos --test x.npz": "--data.test is given, but photos is a folder",
    "data info digits --test x.npz": "--data.test is given, but digits has a test set",
    "data info ''": "no data is named: give a folder of images",
    "data info svhn": "`uiat data fetch`",
    "data info empty": "empty has no images in sub-folders",
    "data info file": "file has no supported data format",
    "data pack file": "there is no folder file",
    "data pack photos --out run": "run is there already: choose another --out, or remove it.",
    "data fetch photos": "unknown data set 'photos'",
    "list --json": "unknown group '--json'",
    "reproduce table1 --only natural --plan": "no run of table1 is of the methods in --only",
    "reproduce fig1 --out /proc/x --jobs 1": "cannot write the folder /proc/x: ",
    "reproduce claims --out file": "cannot write the folder file: file is a file; choose another --out.",
    "bench --methods": "--methods names none: give some of natural, sat",
    "bench --threads 0": "--threads is 0: give at least 1.",
    "bench --json photos": "cannot write photos: give the path of a file, not of a folder.",
    "bench --figure no/x.png": "cannot write no/x.png: there is no such folder, make it first.",
    "bench --figure x.txt": "--figure is x.txt: give a name that ends in .png or .svg.",
}


@pytest.mark.parametrize(("words", "sentence"), MISTAKES.items(), ids=MISTAKES)
def test_one_sentence_before_any_work(
    words: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*args: object, **options: object) -> None:
        raise AssertionError("the work has begun")

    for place in ("evaluate.natural_stage", "curves.measure", "inverse.make_inverses", "bench.time_methods"):
        monkeypatch.setattr(f"uiat.cli.{place}".replace("cli.evaluate", "evaluation.suite"), work)
    before = sorted(str(path) for path in here.rglob("*") if "data" not in path.parts)
    assert sentence in stopped(capsys, *shlex.split(words))
    assert sorted(str(path) for path in here.rglob("*") if "data" not in path.parts) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("evaluate run --atacks natural", "--attacks"),
        ("evaluate run --n abc", "abc"),
        ("evaluate run extra", "extra"),
        ("evaluate run --weights beste", "best"),
        ("export run --onx", "--onnx"),
        ("reproduce table1 --scale big", "smoke"),
        ("data info photos --size 20 30 40", "40"),
    ],
)
def test_a_flag_that_is_no_flag(words: str, named: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert named in refused_flag(capsys, *words.split())


@pytest.mark.parametrize(
    ("file", "content", "command", "sentence"),
    [
        ("config.json", "{", "evaluate", "cannot read run/config.json: "),
        ("config.json", "[]", "evaluate", "cannot read run/config.json: the configuration is not of schema 1"),
        ("config.json", "{}", "export", "cannot read run/config.json: the configuration is not of schema 1"),
        ("result.json", "{", "evaluate", "cannot read run/result.json: "),
        ("result.json", "[]", "evaluate", "cannot read run/result.json: it holds '[]'"),
        ("result.json", '{"evaluations": 3}', "evaluate", "cannot read run/result.json: evaluations is '3'"),
        ("result.json", '{"evaluations": [3]}', "export", "cannot read run/result.json: evaluations is '[3]'"),
        ("data.json", "{", "evaluate", "cannot read run/data.json: "),
        ("data.json", '{"shape": [3, 8, 8]}', "evaluate", "3 channels, but digits has 1"),
    ],
)
def test_a_damaged_file(
    file: str, content: str, command: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run", file).write_text(content)
    assert sentence in refused(capsys, command, "run")


def test_metrics_that_are_no_records(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run/metrics.jsonl").write_text("3\n")
    Path("run/result.json").unlink()
    with pytest.raises(UserError, match=r"line 1 of .*metrics\.jsonl"):
        RunFolder("run").read_metrics()
    assert call(capsys, "export", "run").code == 0


def test_weights_that_are_gone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every advice can be followed, and does not lead back to the same sentence."""
    Path("run/best.safetensors").unlink()
    sentence = "run has no best.safetensors: use run/last.safetensors instead (--weights last)."
    for command in ("evaluate", "export", "curves", "inverse"):
        assert refused(capsys, command, "run") == sentence
    assert call(capsys, "evaluate", "run", "--weights", "last", *NATURAL).code == 0
    Path("run/last.safetensors").unlink()
    finished = "run has no best.safetensors: the run is finished"
    assert finished in refused(capsys, "evaluate", "run")
    Path("run/result.json").unlink()
    Path("run/checkpoint.pt").unlink()
    Path("run/checkpoint.previous.pt").unlink()
    assert "train again in another folder" in refused(capsys, "evaluate", "run")


def test_other_data_is_not_cut_as_the_run_cut_its_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--model.width", "2", "--train.epochs", "1", "--method.attack.steps", "1", "--validate.steps", "1"]
    cut = ["--data.subset", "9", "--data.validation", "2", "--data.test-subset", "1"]
    assert call(capsys, "train", "--data", "photos", *cut, *small, "--out", "own").code == 0
    fill(here / "fewer", {"a": 4, "b": 4})
    assert call(capsys, "evaluate", "own", "--data", "fewer", *NATURAL).code == 0
    entry = json.loads(Path("own/result.json").read_text(encoding="utf-8"))["evaluations"][-1]
    assert (entry["data"], entry["n"]) == ("fewer", 2)
    assert call(capsys, "evaluate", "own", "--data", "photos", *NATURAL).code == 0
    entry = json.loads(Path("own/result.json").read_text(encoding="utf-8"))["evaluations"][-1]
    assert entry["n"] == 1  # its own data, as it cut it


def test_advice_names_the_flag_of_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(here / "large_data.test", {"a": 4, "b": 4}, size=(1100, 700))
    for command in ("info", "pack"):
        sentence = refused(capsys, "data", command, "large_data.test")
        assert "large_data.test have 700×1100 pixels" in sentence
        assert "--data.size 41 64" in sentence
        assert call(capsys, "data", command, "large_data.test", "--data.size", "41", "64").code == 0
    assert refused(capsys, "train", "--data", "./large_data.test").endswith("such as --data.size 41 64.")


def test_suggested_commands_can_be_copied(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("run", "ein Lauf 猫's")
    found = call(capsys, "export", "ein Lauf 猫's")
    line = found.out.splitlines()[-1]
    assert shlex.split(line.partition("next: ")[2]) == ["uiat", "evaluate", "ein Lauf 猫's"]
    assert call(capsys, "evaluate", "ein Lauf 猫's", *NATURAL, "--json", "a b ü.json").code == 0
    assert call(capsys, "train", "--resume", "ein Lauf 猫's").out.splitlines()[-1] == (
        f"done; next: uiat evaluate {quoted('ein Lauf 猫' + chr(39) + 's')}"
    )
    sentence = refused(capsys, "train", "--data.subset", "72", "--data.validation", "12", "--out", "ein Lauf 猫's")
    words = shlex.split(sentence.split("`")[1])
    assert words == ["uiat", "train", "--resume", "ein Lauf 猫's"]
    out = call(capsys, "data", "pack", "photos", "--out", "ab c.npz").out
    assert out == "packed; next: uiat train --data 'ab c.npz' --data.test 'ab c-test.npz'\n"


def test_two_evaluations_at_once(here: Path) -> None:
    """Both results are kept: the second one waits."""

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


def test_two_processes_evaluate_at_once(here: Path) -> None:
    """Neither loses the entry of the other, whichever comes first."""
    attacks = ("natural", "fgsm")
    words = [sys.executable, "-m", "uiat", "evaluate", "run", "--n", "4", "--device", "cpu", "--attacks"]
    started = [subprocess.Popen([*words, attack], stdout=subprocess.DEVNULL) for attack in attacks]
    assert [process.wait(600) for process in started] == [0] * len(attacks)
    found = [entry["attack"] for entry in RunFolder("run").read_card()["evaluations"] if entry.get("n") == 4]
    assert sorted(found) == sorted(attacks)


def test_a_run_of_classes_in_any_script(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(here / "tiere", {"猫": 6, "قطة": 6, "🐈": 6})
    small = ["--model.width", "2", "--train.epochs", "1", "--method.attack.steps", "1", "--validate.steps", "1"]
    assert main(["train", "--data", "tiere", *small, "--out", "läufe 猫"]) == 0
    assert main(["inverse", "läufe 猫", "--n", "3", "--passes", "1"]) == 0
    assert main(["curves", "läufe 猫", "--n", "3", "--grid", "0"]) == 0
    assert Path("läufe 猫/inverse/inverse.png").is_file()
