"""Published runs: one file each, which commands read like the run folder."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.calls import call, refused
from tests.support.processes import ROOT
from tests.support.tiny import TINY, tiny_scale
from tools.publish_runs import publish
from uiat.errors import UserError
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import Attacked
from uiat.runs.published import publish_run, readable_folder, unpack_run

DAMAGED = '{"schema": 1, "files": {"config.json": {}, "learning.safetensors": "AAAA"}}'


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """Copy the run of SAT and its measurements, with its weights."""
    with tiny_scale():
        name = Cell(TINY.config("sat")).name
    shutil.copytree(made / "runs" / name, tmp_path / "from" / "runs" / name, symlinks=True)
    return tmp_path / "from" / "runs" / name


def test_files_come_back_byte_for_byte(copied: Path, tmp_path: Path) -> None:
    publish_run(copied, tmp_path / "run.json")
    unpack_run(tmp_path / "run.json", tmp_path / "unpacked")
    before, after = contents(copied), contents(tmp_path / "unpacked")
    assert {"config.json", "metrics.jsonl", "result.json"} < after.keys()
    assert sum(name.startswith("measures/") for name in after) >= 4
    assert after == {name: before[name] for name in after}
    left = {Path(name).name.partition(".")[0] for name in before.keys() - after.keys()}
    assert {"best", "last", "checkpoint"} <= left, "weights are not published"


def test_a_published_run_is_finished_and_can_be_reported(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = copied, copied.parents[1]
    args = ("reproduce", "table1", "--only", "sat", "--out", str(out))
    with tiny_scale():
        plan = call(capsys, *args, "--plan").out
        assert call(capsys, *args).code == 0
        table = (out / "table1.json").read_text("utf-8")
        for file in (*folder.glob("*.pt"), *folder.glob("*.safetensors")):
            file.unlink()
        compared = call(capsys, "compare", str(out)).out
        publish(out, out)
        assert not folder.exists()
        assert call(capsys, *args, "--plan").out == plan
        assert call(capsys, *args).code == 0
    assert (out / "table1.json").read_text("utf-8") == table
    assert not folder.exists()
    assert call(capsys, "compare", str(out)).out == compared
    monkeypatch.chdir(out)
    assert call(capsys, "compare", ".").code == 0


def test_a_folder_with_weights_stays_and_is_read(copied: Path) -> None:
    out = copied.parents[1]
    publish(out, out)
    assert copied.with_name(f"{copied.name}.json").is_file()
    assert readable_folder(copied) == copied


def test_measurements_of_the_same_training_are_kept(copied: Path, tmp_path: Path) -> None:
    out = tmp_path / "published"
    publish(copied.parents[1], out)
    whole = contents(readable_folder(out / "runs" / copied.name))
    shutil.rmtree(copied / "measures")
    publish(copied.parents[1], out)
    assert contents(readable_folder(out / "runs" / copied.name)) == whole
    lines = [json.loads(line) for line in (copied / "metrics.jsonl").read_text("utf-8").splitlines()]
    text = "".join(f"{json.dumps({**line, 'loss': line['loss'] + 1e-9})}\n" for line in lines if "loss" in line)
    (copied / "metrics.jsonl").write_text(text, encoding="utf-8")
    publish(copied.parents[1], out)
    other = contents(readable_folder(out / "runs" / copied.name))
    assert not any(name.startswith("measures/") for name in other), "they were of other weights"


@pytest.mark.parametrize(
    "name", ["../outside.json", "/tmp/outside.json", "checkpoint.pt", "measures/../a-00000000.json"]
)
def test_other_names_are_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"schema": 1, "files": {"config.json": {}, name: {}}}), encoding="utf-8")
    with pytest.raises(UserError, match=r"run\.json: it is not a published run"):
        unpack_run(file, tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json"]


@pytest.mark.parametrize("content", ["[]", "{", '{"schema": 1, "files": {}}', DAMAGED])
def test_a_damaged_file_is_named(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(Cell(TINY.config("sat"), (Attacked("natural"),)), tmp_path)
    store.path.parent.mkdir()
    file = store.path.with_name(f"{store.path.name}.json")
    file.write_text(content, encoding="utf-8")
    assert str(file) in refused(capsys, "compare", str(tmp_path))


def test_there_are_few_published_files() -> None:
    files = [path for path in (ROOT / "results").rglob("*") if path.is_file() and "lock" not in path.name]
    assert 100 < len(files) <= 250
