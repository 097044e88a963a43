"""Atomic writes: a file is complete or absent."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.processes import fork
from uiat.io import atomic, write_json, write_tensors


def test_a_write_that_fails_midway_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with atomic(path) as temporary:
            temporary.write_text("ne")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_write_is_not_seen_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.parent == tmp_path  # a rename is atomic within one file system only
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_bytes_are_on_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    rename = os.replace

    def renamed(source: Path, target: Path) -> None:
        order.append("rename")
        rename(source, target)

    monkeypatch.setattr("uiat.io.sync", lambda path: order.append(f"sync {path.name}"))
    monkeypatch.setattr("os.replace", renamed)
    write_json(tmp_path / "file", {})
    assert order[0].startswith("sync .file.")
    assert order[1:] == ["rename", f"sync {tmp_path.name}"]


def test_two_writers_of_one_path_never_mix(tmp_path: Path) -> None:
    """Each writer publishes its complete content, the first and then the second."""
    path = tmp_path / "file"
    with atomic(path) as first:
        first.write_text("first, the whole of it")
        with atomic(path) as second:
            second.write_text("second")
            assert first.read_text() == "first, the whole of it"
        assert path.read_text() == "second"
    assert path.read_text() == "first, the whole of it"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_many_processes_write_one_path(tmp_path: Path) -> None:
    """Each writes a complete file or none; nothing else is left."""
    path, folder = tmp_path / "logs" / "file.json", tmp_path / "logs"
    folder.mkdir()

    def write(name: str) -> None:
        for _ in range(40):
            write_json(path, [name] * 5000)

    writers = [fork(tmp_path / f"{name}.txt", write, name) for name in "ab"]
    for writer in writers:
        writer.wait_for(path)
        assert len(set(json.loads(path.read_text()))) == 1
    assert [writer.end() for writer in writers] == [(0, ""), (0, "")]
    assert [p.name for p in folder.iterdir()] == ["file.json"]


def test_a_file_that_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".file.abc123.tmp").write_text("half")
    (tmp_path / ".other.abc123.tmp").write_text("not of this path")
    write_json(tmp_path / "file", 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other.abc123.tmp", "file"]


def test_no_write_follows_a_link(tmp_path: Path) -> None:
    """Neither under the name of the file nor under any that a temporary file may have had."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    for name in (".result.json.tmp", f".result.json.{os.getpid()}.tmp", "result.json"):
        (run / name).symlink_to(outside)
    write_json(run / "result.json", {})
    assert outside.read_text() == "mine"
    assert not (run / "result.json").is_symlink()


def test_json_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"ε": 1})
    with pytest.raises(TypeError):
        write_json(path, {"ε": object()})
    assert json.loads(path.read_text()) == {"ε": 1}
    assert "ε" in path.read_text()


def test_tensors(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    tensors = {"a": torch.randn(3, 4).t(), "b": torch.nn.Parameter(torch.ones(2)), "c": torch.tensor(3)}
    write_tensors(path, tensors)
    found = load_file(path)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_tied_weights_and_slices_are_written_apart(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    tensors = {"one": whole, "same": whole, "part": whole[:2], "other": whole[2:]}
    write_tensors(tmp_path / "file", tensors)
    found = load_file(tmp_path / "file")
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
