"""The folder of an export: files that it writes, replaces and keeps."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.support.calls import call, missing_facts, refused, stopped
from tests.support.exports import FAMILIES, GREY, make_run
from uiat.cli import main
from uiat.io import digest
from uiat.models import ResNet
from uiat.runs.run_folder import RunFolder, read_json

NAMES = {"model.safetensors", "model.py", "example.py", "card.json", "README.md"}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run", *FAMILIES["resnet"])[0]


def test_a_note_without_accuracies(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "export", str(run.path))
    assert found.code == 0
    assert "no accuracies" in found.err


def test_a_second_export_takes_the_place_of_the_first(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "out"
    assert call(capsys, "export", str(run.path), "--out", str(out)).code == 0
    first = read_json(out / "card.json")
    (out / "notes.txt").write_text("mine")
    (out / "model.onnx").write_text("of the first export")
    assert call(capsys, "export", "--weights", "last", "--out", str(out), str(run.path)).code == 0
    second = read_json(out / "card.json")
    assert (first["weights"]["from"], second["weights"]["from"]) == ("best", "last")
    assert first["weights"]["sha256"] != second["weights"]["sha256"]
    assert {path.name for path in out.iterdir()} == {*NAMES, "notes.txt"}


@pytest.mark.parametrize("name", [*sorted(NAMES), "model.onnx", "network.py"])
def test_other_peoples_files_are_kept(
    name: str, run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text('{"kind": "mine"}')
    message = refused(capsys, "export", str(run.path), "--out", str(out))
    assert missing_facts(message, f"{out} {name} --out") == []
    assert [path.name for path in out.iterdir()] == [name]
    assert (out / name).read_text() == '{"kind": "mine"}'


def test_files_of_other_names_are_no_hindrance(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert call(capsys, "export", str(run.path), "--out", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_a_file_in_the_place_of_the_folder(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("mine")
    for out in (tmp_path / "out", tmp_path / "out" / "deeper"):
        assert f"cannot write the folder {out}" in refused(capsys, "export", str(run.path), "--out", str(out))
    assert (tmp_path / "out").read_text() == "mine"


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        assert f"{path} is not a run folder" in refused(capsys, "export", str(path))
    assert list(tmp_path.iterdir()) == []


def test_no_weights_yet(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.best.unlink()
    message = refused(capsys, "export", str(run.path))
    assert f"{run.path} has no best.safetensors: " in message
    assert not (run.path / "export").exists()


def test_damaged_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = make_run(tmp_path / "data", ResNet(blocks=(1,), width=4), GREY, data={"name": "digits"})
    assert "does not describe the data" in refused(capsys, "export", str(run.path))
    run, _ = make_run(tmp_path / "weights", ResNet(blocks=(1,), width=4), GREY)
    run.best.write_bytes(b"damaged")
    assert "not a readable safetensors file" in refused(capsys, "export", str(run.path))
    run.result.write_text("{")
    assert f"cannot read {run.result}" in refused(capsys, "export", str(run.path))


def export_killed(command: tuple[str, ...], moment: int) -> bool:
    """Export in a child that dies before one of its renames and removals; return whether it lived."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    passed = iter(range(1000))

    def dying(change: Any) -> Any:
        def change_or_die(*args: Any, **options: Any) -> None:
            if next(passed) == moment:
                os._exit(9)
            change(*args, **options)

        return change_or_die

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("uiat.io.os.replace", dying(os.replace))
            patch.setattr("uiat.export.exported_folder.Path.unlink", dying(Path.unlink))
            os._exit(main([*command]))
    finally:
        os._exit(3)


def test_weights_that_are_not_finite(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """The logits of the exported network are NaN where those of the run are."""
    tensors = {name: tensor.clone() for name, tensor in load_file(run.best).items()}
    next(tensor for name, tensor in tensors.items() if name.endswith("bias")).fill_(float("nan"))
    save_file(tensors, run.best)
    assert call(capsys, "export", str(run.path)).code == 0


@pytest.mark.parametrize("again", [False, True], ids=["first", "second"])
def test_an_export_that_was_killed_is_repeated(
    again: bool, run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At every moment, in a new folder or in that of an earlier export."""
    args = ("export", str(run.path), "--hub-card", "--out")
    earlier = tmp_path / "earlier"
    assert call(capsys, *args, str(earlier), "--weights", "last").code == 0
    for moment in range(100):
        out = tmp_path / str(moment)
        if again:
            shutil.copytree(earlier, out)
        lived = export_killed((*args, str(out)), moment)
        if (out / ".unfinished-export").exists():
            assert "not complete" in stopped(capsys, "evaluate", str(out))
        assert call(capsys, *args, str(out)).code == 0
        assert {path.name for path in out.iterdir()} == {*NAMES, "config.json"}
        assert read_json(out / "card.json")["weights"]["sha256"] == digest(out / "model.safetensors")
        if lived:
            break
    assert 10 < moment < 99
