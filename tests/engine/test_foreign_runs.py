"""Runs of strangers: nothing is written outside their folder."""

from pathlib import Path

import pytest

from tests.support.calls import call
from uiat.runs.folder import RunFolder

COMMANDS = {
    "evaluate": ("--attacks", "natural", "--n", "4"),
    "curves": ("--attack", "pgd-1", "--n", "4", "--grid", "0", "0.1"),
    "inverse": ("--n", "4", "--z-images", "8", "--passes", "1"),
    "train": (),
}
FILES = ("lock", "metrics.jsonl", "log.txt", "result.json", ".result.json.tmp", "checkpoint.pt", "table-1.safetensors")


@pytest.mark.parametrize("name", [*FILES, "curves", "inverse", "tensorboard", "helper"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_link_in_a_run_leads_nowhere(
    command: str, name: str, run_copy: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is refused, or it never touches the link; what it leads to stays the same."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    link = run_copy.path / name
    if link.exists():
        (outside / "file").write_bytes(link.read_bytes())
        link.unlink()
    link.symlink_to(outside / "file" if name in FILES else outside)
    before = (outside / "file").read_bytes()
    words = ("train", "--resume", str(run_copy.path)) if command == "train" else (command, str(run_copy.path))
    found = call(capsys, *words, *COMMANDS[command])
    assert found.code == 2, found.err
    assert str(link) in found.err
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == before
