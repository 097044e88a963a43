"""Untrusted runs: nothing is written outside their folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.calls import call
from tests.support.runs import CPU, splits, tiny
from uiat.engine.loop import train
from uiat.errors import UserError
from uiat.runs.run_folder import RunFolder

WRITERS = {
    "evaluate": ("--attacks", "natural", "--n", "4"),
    "curves": ("--attack", "pgd-1", "--n", "4", "--grid", "0", "0.1"),
    "inverse": ("--n", "4", "--z-images", "8", "--passes", "1"),
    "export": (),
    "train": (),
}
READERS = {"report": ("--pictures", "0", "-o", "report.html"), "compare": (), "watch": ("--once",)}
FILES = (
    *("lock", "metrics.jsonl", "log.txt", "result.json", ".result.json.tmp", "data.json", "checkpoint.pt"),
    *("checkpoint.previous.pt", "last.safetensors", "table-1.safetensors", "evaluation-1.safetensors"),
    *("evaluation-1.adversaries", "init.safetensors", "curves/curves.json", "export/card.json"),
)
FOLDERS = ("curves", "inverse", "tensorboard", "export", "measures", "helper", "folder/deep")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder outside of the run, with a file whose bytes must not change."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("{}")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lead_outside(run: RunFolder, name: str, outside: Path) -> Path:
    """Replace a file or folder of a run by a link to a copy of it outside."""
    link = run.path / name
    link.parent.mkdir(exist_ok=True)
    if link.exists():
        (outside / "file").write_bytes(link.read_bytes())
        link.unlink()
    link.symlink_to(outside / "file" if name in FILES else outside)
    return link


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
@pytest.mark.parametrize("command", [*WRITERS, *READERS])
def test_a_link_in_a_run_leads_nowhere(
    command: str, name: str, run_copy: RunFolder, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that writes into the run is refused, one that reads it writes nothing; the target is unchanged."""
    link = lead_outside(run_copy, name, outside)
    before = content(outside)
    args = ("train", "--resume", str(run_copy.path)) if command == "train" else (command, str(run_copy.path))
    found = call(capsys, *args, *{**WRITERS, **READERS}[command])
    assert "Traceback" not in found.err
    if command in WRITERS:
        assert found.code == 2, found.err
        assert str(link) in found.err
    else:
        assert found.code == 0, found.err
    assert content(outside) == before


@pytest.mark.parametrize("target", ["../outside", "../..", "..", "../outside/deep"])
def test_a_helper_is_not_made_through_a_link(target: str, tmp_path: Path, outside: Path) -> None:
    config = tiny("hat")
    run = RunFolder.create(tmp_path / "run", config)
    run.helper.symlink_to(target)
    before = content(tmp_path)
    with pytest.raises(UserError, match="helper"):
        train(config, run, splits(config.data), CPU)
    assert {name for name in content(tmp_path) if name not in before} <= {"run/lock"}


def test_a_helper_of_another_network_is_not_trained(tmp_path: Path) -> None:
    config = tiny("hat")
    run = RunFolder.create(tmp_path / "run", config)
    RunFolder.create(run.helper, replace(config, model=replace(config.model, width=5)))  # type: ignore[type-var]
    with pytest.raises(UserError, match=r"helper/config\.json has another network"):
        train(config, run, splits(config.data), CPU)
