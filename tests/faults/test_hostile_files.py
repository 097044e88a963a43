"""Malicious files: no code in them runs, and each gives one error message.

Other tests of this kind: CIFAR's pickles in `tests/data/test_cifar.py`, archives with `../` and links in
`tests/data/test_fetch.py:test_archive_that_tries_to_escape`, .npz files with objects or endless headers in
`tests/data/test_npz.py`, .mat files in `tests/data/test_svhn.py`, weights files with code in
`tests/engine/test_weights.py:test_code_in_a_file_is_not_run`, unknown kinds in config.json in
`tests/engine/test_run_errors.py:test_a_broken_configuration`, and untrusted exports in
`tests/export/test_untrusted_exports.py`.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import uiat
from tests.support.calls import stopped
from tests.support.runs import resume_run
from uiat.errors import UserError
from uiat.evaluation.ledger import Ledger
from uiat.io import write_sealed
from uiat.runs.run_folder import RunFolder


class Bomb:
    """A pickle that runs code when it is loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("sealed", [True, False], ids=["with-digest", "without"])
def test_code_in_a_checkpoint(sealed: bool, run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    trace, content = run_copy.path / "trace", {"schema": 1, "model": Bomb(run_copy.path / "trace")}
    if sealed:
        write_sealed(run_copy.checkpoint, content)
    else:
        torch.save(content, run_copy.checkpoint)
    assert resume_run(run_copy)  # from the previous one
    assert "checkpoint.pt is damaged or of another version: resuming from" in run_copy.log.read_text()
    for path in (run_copy.checkpoint, run_copy.previous):
        write_sealed(path, content)
    assert "is damaged or of another version" in stopped(capsys, "train", "--resume", str(run_copy.path))
    assert not trace.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"rng": "text"},
        {"rng_cuda": 5},
        {"rng": torch.zeros(3, dtype=torch.uint8)},
        {"method": [1, 2]},
        {"method": {"target.inner.z": torch.zeros(1)}},
        {"model": {}},
        {"model": 7},
        {"optimizer": {"state": {}, "param_groups": []}},
        {"meter": None},
        {"passes": "many"},
        {"table_file": 5},
        {"table_file": "../../../../etc/passwd"},
        {"table_file": "\0"},
        {"metrics_bytes": "all"},
        {"schema": "one"},
    ],
    ids=str,
)
def test_a_whole_checkpoint_with_nonsense(
    changes: dict[str, Any], run_copy: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    run_copy.previous.unlink()
    write_sealed(run_copy.checkpoint, {**torch.load(run_copy.checkpoint, weights_only=True), **changes})
    assert stopped(capsys, "train", "--resume", str(run_copy.path)).endswith(
        ("move this one away.", ").", "that version.")
    )


def header(text: str, size: int | None = None, data: bytes = b"") -> bytes:
    return (len(text) if size is None else size).to_bytes(8, "little") + text.encode() + data


ABSURD = {
    "endless": header("{}", 2**62),
    "negative": header("{}", 2**64 - 1),
    "no-json": header("x" * 100),
    "nested": header("[" * 100_000),
    "petabytes": header(json.dumps({"t": {"dtype": "F32", "shape": [2**50], "data_offsets": [0, 2**52]}})),
    "overflow": header(
        json.dumps({"t": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}), data=b"1234"
    ),
    "overlap": header(
        json.dumps({k: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} for k in ("a", "b")}), data=b"1234"
    ),
    "other-type": header(json.dumps({"t": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 4]}}), data=b"1234"),
    "empty": b"",
}


@pytest.mark.parametrize("kind", ABSURD)
def test_an_absurd_table(kind: str, run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run_copy.previous.unlink()
    saved = torch.load(run_copy.checkpoint, weights_only=True)
    (run_copy.path / saved["table_file"]).write_bytes(ABSURD[kind])
    write_sealed(run_copy.checkpoint, {**saved, "table_sha256": None})  # else the digest differs
    assert "is missing or damaged" in stopped(capsys, "train", "--resume", str(run_copy.path))


@pytest.mark.parametrize("kind", ABSURD)
def test_an_absurd_ledger_and_absurd_weights(
    kind: str, run_copy: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ledger").write_bytes(ABSURD[kind])
    assert Ledger(tmp_path / "ledger", "key").stages == {}  # the work is repeated, but the evaluation is not lost
    run_copy.best.write_bytes(ABSURD[kind])
    assert "is not a readable safetensors file" in stopped(capsys, "evaluate", str(run_copy.path), "--n", "9")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"schema": 1, "kind": "os.system"}',
        '{"schema": 1, "kind": {"kind": "Config"}}',
        '{"schema": 1, "kind": "__import__(\'os\')"}',
        '{"schema": 1, "kind": "Config", "__class__": 3}',
        '{"schema": 1, "kind": "Config", "data": {"kind": "UIAT"}}',
        "\ud800",
        "9" * 9000,
    ],
    ids=lambda text: text[:30].encode("ascii", "replace").decode(),
)
def test_a_hostile_configuration(text: str, run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run_copy.config.write_bytes(text.encode("utf-8", "surrogatepass"))
    for command in (["train", "--resume"], ["evaluate"]):
        assert len(stopped(capsys, *command, str(run_copy.path))) < 600


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("model", "blocks", [10**30]),
        ("model", "blocks", [9999] * 9999),
        ("model", "width", 10**9),
        ("model", "width", True),
        ("method", "kind", "ResNet"),
        ("validate", "steps", 10**9),
        ("train", "epochs", "3"),
        ("data", "name", ["digits"]),
    ],
)
def test_a_configuration_that_would_take_for_ever(
    part: str, field: str, value: object, run_copy: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = json.loads(run_copy.config.read_text())
    saved[part][field] = value
    run_copy.config.write_text(json.dumps(saved))
    for command in (["train", "--resume"], ["evaluate"], ["export"], ["compare"], ["watch", "--once"]):
        message = stopped(capsys, *command, str(run_copy.path))
        assert str(run_copy.config) in message
        assert len(message) < 600
    with pytest.raises(UserError, match=r"config\.json"):
        uiat.load(run_copy.path)


def test_a_pipe_in_the_place_of_a_file(run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run_copy.result.unlink()
    os.mkfifo(run_copy.result)
    for command in ("evaluate", "compare", "export"):
        assert f"{run_copy.result}: it is not a regular file" in stopped(capsys, command, str(run_copy.path))


def test_metrics_that_are_no_json(run_copy: RunFolder) -> None:
    run_copy.metrics.write_text("[" * 100_000)
    with pytest.raises(UserError, match="cannot read"):
        run_copy.read_metrics()
