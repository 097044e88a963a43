"""Code that only a run names is never imported or called, unless the user names it."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import uiat
import uiat.cli
from tests.support.calls import Call, call
from tests.support.data_files import picture
from uiat.errors import UserError
from uiat.io import write_sealed
from uiat.runs.run_folder import RunFolder, read_json

CANARY = """
from pathlib import Path
Path("imported").touch()

def load(split):
    Path("called").touch()
    from sklearn.datasets import load_digits
    digits = load_digits()
    pairs = [(x.astype("uint8"), int(y)) for x, y in zip(digits.images * 15, digits.target)]
    return pairs[:500] if split == "train" else pairs[500:600]

def build(spec):
    Path("called").touch()
    from uiat.models import ResNet
    return ResNet(blocks=(1, 1), width=4).build(spec)

def make(*_):
    Path("called").touch()
"""
SMALL = ("--n", "4")
COMMANDS: dict[str, tuple[str, ...]] = {
    "evaluate": ("evaluate", "RUN", "--attacks", "natural", *SMALL),
    "curves": ("curves", "RUN", "--attack", "pgd-1", "--grid", "0", "0.1", *SMALL),
    "inverse": ("inverse", "RUN", "--z-images", "8", "--passes", "1", "--rows", "1", *SMALL),
    "report": ("report", "RUN", "--attack", "pgd-1", "--examples", "2", *SMALL),
    "compare": ("compare", "RUN"),
    "watch": ("watch", "RUN", "--once"),
    "train": ("train", "--resume", "RUN"),
    "export": ("export", "RUN"),
    "predict": ("predict", "RUN", "picture.png"),
    "bench": (
        *("bench", "--methods", "RUN", "--model", "resnet8", "--model.width", "2", "--batch-size", "4", "--size", "8"),
        *("--rounds", "1", "--no-references", "--no-memory"),
    ),
    "load": ("load", "RUN"),
}
FLAGS = {"data": ("--data", "canary:load"), "model": ("--model", "canary:build"), "imports": ("--import", "canary.py")}
FLAGS["places"] = FLAGS["data"]
NEEDED = {
    **dict.fromkeys(("data", "places"), ("evaluate", "curves", "inverse", "report", "train")),
    "model": ("evaluate", "curves", "inverse", "report", "train", "export", "predict", "load"),
    "imports": ("train",),
}
"""The commands that cannot do without the code; all others work without it."""


@pytest.fixture
def hostile(run_copy: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Return a run; its folder and the current one hold a module that records whether it was imported or called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "store"))
    monkeypatch.delitem(sys.modules, "canary", raising=False)
    for folder in (tmp_path, run_copy.path):
        (folder / "canary.py").write_text(CANARY)
    picture(0, 0).save(tmp_path / "picture.png")
    for module in ("curve_plot", "inverse_grid"):  # drawing takes most of the time
        monkeypatch.setattr(f"uiat.report.{module}.save_figure", lambda *_: None)
    return run_copy


def name_code(run: RunFolder, part: str) -> None:
    """Name the module as data, network, import or log in the files of a run."""
    config: dict[str, Any] = read_json(run.config)
    if part in ("data", "places"):
        config["data"]["name"] = "canary:load" if part == "data" else "gone.npz"
        run.data.write_text(json.dumps({"places": {"name": "canary:load"}}))
    elif part == "model":
        config["model"] = {"kind": "Imported", "target": "canary:build"}
        card = read_json(run.result)  # what was edited after the training alone is not exported
        run.result.write_text(json.dumps({**card, "config": config}))
    elif part == "imports":
        config["imports"] = [{"name": "canary.py", "folder": "/proc/self/cwd"}]
    else:
        config["log"] = "canary:make"
    run.config.write_text(json.dumps(config))


def bring_checkpoint(run: RunFolder) -> None:
    """Remove the provenance of a finished run from its checkpoints, as if an earlier version had made it."""
    for path in (run.checkpoint, run.previous):
        if path.exists():
            content = torch.load(path, weights_only=True)
            content.pop("provenance", None)
            write_sealed(path, content)


def use(capsys: pytest.CaptureFixture[str], command: str, run: RunFolder, flags: tuple[str, ...] = ()) -> Call:
    if command != "load":
        return call(capsys, *(word.replace("RUN", str(run.path)) for word in COMMANDS[command]), *flags)
    try:
        uiat.load(run.path, model=flags[1] if flags else "")
    except UserError as error:
        return Call(2, "", f"uiat: {error}\n")
    return Call(0, "", "")


@pytest.mark.parametrize("part", [*FLAGS, "log"])
@pytest.mark.parametrize("command", COMMANDS)
def test_code_that_only_a_run_names(
    command: str, part: str, hostile: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    name_code(hostile, part)
    found = use(capsys, command, hostile)
    needs = part == "log" or command in NEEDED[part]
    assert found.code == (2 if needs else 0), found.err
    assert "Traceback" not in found.err
    assert not os.path.exists("imported")
    assert "canary" not in sys.modules
    if part == "log":  # not a field: what --log names is not saved
        assert "'log'" in found.err
        return
    if needs:
        assert " ".join(FLAGS[part]) in found.err
        if command == "train":  # of a run that was made with it: one that was edited is not resumed
            bring_checkpoint(hostile)
        found = use(capsys, command, hostile, FLAGS[part])
        assert found.code == 0, found.err
        assert os.path.exists("imported")
        assert os.path.exists("called") == (part != "imports")


def test_another_network_than_the_runs_is_not_resumed(hostile: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """The network named for a resume or an export must be the one that the run names."""
    for command in ("train", "export"):
        found = use(capsys, command, hostile, FLAGS["model"])
        assert found.code == 2
        assert "canary:build is not the network of" in found.err
        assert not os.path.exists("imported")


def test_a_curve_against_a_run_with_another_network(
    hostile: RunFolder, finished_run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    name_code(hostile, "model")
    args = [word.replace("RUN", str(finished_run.path)) for word in COMMANDS["curves"]]
    args += ["--against", str(hostile.path), "--out", "curves"]
    found = call(capsys, *args)
    assert found.code == 2
    assert "--against-model canary:build" in found.err
    assert not os.path.exists("imported")
    assert call(capsys, *args, "--against-model", "canary:build").code == 0


def test_workers_get_the_flags_that_name_code(hostile: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--processes` starts `uiat train --resume` with the flags that name the code, of a new run and of an old one."""
    given: list[list[str]] = []

    def launch(run: Path, processes: int, restarts: int, flags: list[str]) -> int:
        given.append(flags)
        return 0

    monkeypatch.setattr("uiat.cli.train.launch", launch)
    monkeypatch.setattr("uiat.cli.train.cores", lambda: 2)
    args = [*FLAGS["data"], *FLAGS["model"], *FLAGS["imports"], "--processes", "2", "--device", "cpu"]
    assert uiat.cli.main(["train", *args, "--out", "new"]) == 0
    assert uiat.cli.main(["train", "--resume", "new", *args]) == 0
    for flags in given:
        for part in ("data", "model", "imports"):
            place = flags.index(FLAGS[part][0])
            assert tuple(flags[place : place + 2]) == FLAGS[part]
    assert len(given) == 2
