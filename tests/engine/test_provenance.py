"""Configuration, data, helper and checkpoint belong together: a resume refuses others, and records what may change."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.support.calls import call
from tests.support.moments import RENAME, STEP, Killed, at_call, die
from tests.support.runs import CPU, STEPS, TINY, assert_same, begin, load_checkpoint, resume_run, snapshot, splits, tiny
from uiat.engine.loop import train
from uiat.errors import UserError
from uiat.io import write_sealed
from uiat.methods import HAT
from uiat.runs.run_folder import RunFolder, read_json


def half_way(path: Path, method: str = "uiat", **changes: Any) -> RunFolder:
    """Return a run that was killed in its second epoch."""
    run = RunFolder.create(path, tiny(method, **changes))
    with at_call(STEP, STEPS + 2, die), pytest.raises(Killed):
        resume_run(run)
    return run


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return half_way(tmp_path_factory.mktemp("killed") / "run")


@pytest.fixture
def run(killed: RunFolder, tmp_path: Path) -> RunFolder:
    return RunFolder(shutil.copytree(killed.path, tmp_path / "run"))


def edit(run: RunFolder, name: str, value: Any) -> Any:
    """Change a field of config.json, and return its old value."""
    saved = read_json(run.config)
    *parts, last = name.split(".")
    part = saved
    for key in parts:
        part = part[key]
    before, part[last] = part.get(last), value
    run.config.write_text(json.dumps(saved), encoding="utf-8")
    return before


FIXED: dict[str, Any] = {
    "seed": 1,
    "init": "weights.pt",
    "data.crop": 2,
    "data.flip": False,
    "method.lam": 9.0,
    "method.attack.eps": 0.3,
    "method.attack.steps": 3,
    "method.inverse.eps": 0.2,
    "train.epochs": 4,
    "train.batch_size": 32,
    "train.schedule.lr": 0.2,
    "train.weight_decay": 0.1,
    "train.select": "natural",
    "train.precision": "bf16",
    "train.fast": False,
    "validate.steps": 3,
    "run_id": "of-another-run",
}
FREE: dict[str, Any] = {"train.on_nonfinite": "skip", "train.log_every": 2, "train.checkpoint_minutes": 5.0}


@pytest.mark.parametrize("name", FIXED)
def test_an_edit_that_changes_the_result_is_refused(name: str, run: RunFolder) -> None:
    before, files = edit(run, name, FIXED[name]), content(run)
    with pytest.raises(UserError) as caught:
        resume_run(run)
    for fact in (name.replace("_", " ") if name == "run_id" else name, str(before), str(FIXED[name]), "checkpoint.pt"):
        assert fact in str(caught.value)
    assert content(run) == files, "nothing is changed"
    edit(run, name, before)
    assert resume_run(run)


def content(run: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.path.iterdir() if path.name not in ("lock", "log.txt")}


@pytest.mark.parametrize("name", FREE)
def test_an_edit_that_may_be_made_is_recorded(name: str, run: RunFolder) -> None:
    before = edit(run, name, FREE[name])
    assert resume_run(run)
    (entry,) = run.read_card()["resumed"]
    assert (entry["epoch"], entry["step"]) == (2, 0)
    assert entry["changes"][name] == [before, FREE[name]]
    assert run.read_card()["config"]["train"][name.split(".")[1]] == FREE[name]


def test_generated_images_cannot_be_added(run: RunFolder) -> None:
    edit(run, "data.generated.file", "more.npz")
    images = splits()
    with pytest.raises(UserError, match="generated images"):
        train(run.read_config(), run, replace(images, generated=images.test), CPU)


def test_several_edits_are_named_at_once(run: RunFolder) -> None:
    edit(run, "seed", 7)
    edit(run, "train.epochs", 5)
    with pytest.raises(UserError, match=r"train\.epochs is 3 .* 5 .*seed is 0 .* 7 "):
        resume_run(run)


def test_a_checkpoint_of_another_run_is_refused(run: RunFolder, tmp_path: Path) -> None:
    other = begin(tiny("uiat"), tmp_path / "other")
    for file in (other.checkpoint, *other.path.glob("table-*")):
        shutil.copy(file, run.path)
    with pytest.raises(UserError, match=f"another run.*{other.read_id()}.*{run.read_id()}"):
        resume_run(run)


def test_a_checkpoint_of_an_earlier_version_is_resumed_with_one_notice(
    run: RunFolder, killed: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = begin(tiny("uiat"), tmp_path / "whole")
    saved = load_checkpoint(run)
    del saved["provenance"]
    write_sealed(run.checkpoint, saved)
    edit(run, "run_id", None)
    capsys.readouterr()
    with at_call(STEP, STEPS + 2, die), pytest.raises(Killed):
        resume_run(run)
    assert resume_run(run)
    assert capsys.readouterr().err.count("earlier version") == 1
    assert_same(run, snapshot(whole))


def test_a_kill_between_a_change_and_the_next_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration has the change, the checkpoint does not: the run still resumes, twice."""
    out = str(tmp_path / "run")
    with at_call(STEP, STEPS + 2, die), pytest.raises(Killed):
        call(capsys, "train", "digits-resnet8-natural", *TINY, "--out", out)
    for moment in (RENAME, STEP):
        with at_call(moment, 1, die), pytest.raises(Killed):
            call(capsys, "train", "--resume", out, "--on-nonfinite", "skip", "--device", "cpu")
    assert call(capsys, "train", "--resume", out, "--device", "cpu").code == 0
    (entry,) = RunFolder(out).read_card()["resumed"]
    assert entry["changes"]["train.on_nonfinite"] == ["stop", "skip"]


@pytest.mark.parametrize(
    ("target", "value", "names"),
    [
        ("torch.get_num_threads", lambda: 77, {"threads": [1, 77]}),
        ("torch.backends.cpu.get_cpu_capability", lambda: "OTHER", {"kernels": [None, "OTHER"]}),
        (
            "uiat.runs.result_card.package_version",
            lambda package: f"9 of {package}",
            {"versions.torch": [None, "9 of torch"]},
        ),
        ("uiat.runs.provenance.world", lambda: 3, {"processes": [1, 3]}),
    ],
)
def test_a_resume_elsewhere_is_recorded(
    target: str,
    value: Callable[..., Any],
    names: dict[str, list[Any]],
    run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = load_checkpoint(run)["provenance"]["settings"]
    monkeypatch.setattr(target, value)
    with at_call(STEP, STEPS + 2, die), pytest.raises(Killed):  # a checkpoint keeps what was recorded
        resume_run(run)
    monkeypatch.undo()
    assert resume_run(run)
    there, back = run.read_card()["resumed"]
    for name, (_, after) in names.items():
        known = before
        for key in name.split("."):
            known = known[key]
        assert there["changes"][name] == [known, after]
        assert back["changes"][name] == [after, known]
    assert (there["epoch"], back["epoch"]) == (2, 3)


def test_nothing_is_recorded_where_nothing_changed(run: RunFolder) -> None:
    assert resume_run(run)
    assert [set(entry["changes"]) - {"git_commit"} for entry in run.read_card().get("resumed", [])] in ([], [set()])


def test_other_images_are_refused_without_data_json(run: RunFolder) -> None:
    images = splits(run.read_config().data)
    y = images.train.y.clone()
    y[3] = (y[3] + 1) % 10
    other = replace(images, train=replace(images.train, y=y))
    with pytest.raises(UserError, match="train images"):
        train(run.read_config(), run, other, CPU)


@pytest.mark.parametrize("given", [True, False])
def test_another_helper_is_refused(given: bool, tmp_path: Path) -> None:
    natural = begin(tiny("natural"), tmp_path / "natural")
    config = tiny("hat")
    assert isinstance(config.method, HAT)
    if given:
        config = replace(config, method=replace(config.method, helper=str(natural.best)))
    run = RunFolder.create(tmp_path / "run", config)
    with at_call(STEP, STEPS * (1 if given else 4) + 2, die), pytest.raises(Killed):
        resume_run(run)
    file = natural.best if given else run.helper / "best.safetensors"
    kept = file.read_bytes()
    save_file({name: tensor * 2 for name, tensor in load_file(file).items()}, file)
    with pytest.raises(UserError, match="helper"):
        resume_run(run)
    if given:  # its path may differ
        (tmp_path / "moved.safetensors").write_bytes(kept)
        edit(run, "method.helper", str(tmp_path / "moved.safetensors"))
    else:
        file.write_bytes(kept)
    assert resume_run(run)
    assert ("method.helper" in run.read_card().get("resumed", [{"changes": {}}])[0]["changes"]) == given


def test_every_run_has_an_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (RunFolder.create(tmp_path / name, tiny("natural")) for name in "ab")
    assert first.read_id() != second.read_id()
    assert first.read_id()
    kept = first.read_id()
    first.change_config(first.read_config(), ())
    assert first.read_id() == kept
    assert "run_id" not in call(capsys, "compare", str(first.path), str(second.path)).out


def test_an_edit_after_the_training_is_marked(
    run_copy: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The accuracies belong to the configuration in the card: `compare` reports that, `export` refuses."""
    args = ("export", str(run_copy.path), "--out", str(tmp_path / "export"))
    assert call(capsys, *args).code == 0
    edit(run_copy, "train.log_every", 7)
    assert call(capsys, *args).code == 0, "it moves no weight"
    lam = edit(run_copy, "method.lam", 99.0)
    fact = f"method.lam is {lam} in result.json and 99.0 in config.json"
    found = call(capsys, *args)
    assert (found.code, fact in found.err) == (2, True)
    compared = call(capsys, "compare", str(run_copy.path))
    assert (compared.code, fact in " ".join(compared.out.split())) == (0, True)


def test_a_network_beyond_the_checkpoint_takes_no_memory(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run, "model.width", 9000)
    found = call(capsys, "train", "--resume", str(run.path))
    assert found.code == 2
    assert "describes a network of" in found.err
