"""Every long command ends with the next command, which can be copied."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.calls import Call, call
from tests.support.runs import TINY
from uiat.cli.reproduce import next_command
from uiat.cli.reproduce_job import Reproduce, plan_job
from uiat.runs.run_folder import RunFolder

NETWORK = ("--model.width", "4", "--model.blocks", "1", "1")
"""The network of `tiny`."""
QUICK = {
    "evaluate": ["--n", "4", "--attacks", "natural"],
    "curves": ["--n", "4", "--grid", "0"],
    "inverse": ["--n", "4", "--passes", "1", "--z-images", "20"],
    "report": ["--pictures", "0"],
    "export": [],
    "train": TINY,
}
"""What makes a command short."""


def following(found: Call) -> list[str]:
    """Return the arguments of the command that another one suggests."""
    assert found.code == 0, found.err
    assert found.out.count("; next: ") == 1
    line = found.out.splitlines()[-1]
    assert line.startswith(("done; next: uiat ", "packed; next: uiat "))
    assert "next:" not in found.err
    return shlex.split(line.partition("; next: uiat ")[2])


def test_one_leads_to_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = ["train", "digits-resnet8-natural", "--out", "ein 'Lauf", "--dry-run"]
    made = []
    for _ in range(7):
        made.append(args[0])
        args = following(call(capsys, *args, *QUICK[args[0]]))
        if args[0] == "train":  # the dry run's: its own arguments, and the rest of TINY
            assert args == ["train", "digits-resnet8-natural", "--out", "ein 'Lauf", *TINY]
            assert list(tmp_path.iterdir()) == []
            args = args[:4]
    assert made == ["train", "train", "evaluate", "curves", "inverse", "report", "export"]
    assert args == ["report", "ein 'Lauf"]


def test_a_weights_file_takes_its_flags_along(
    run_copy: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = [str(run_copy.weights()), "--model", "resnet8", "--data", "digits"]
    for command, after in (("evaluate", ["curves", *args]), ("curves", ["inverse", *args])):
        assert following(call(capsys, command, *args, *NETWORK, *QUICK[command])) == after
    after = following(call(capsys, "inverse", *args, *NETWORK, *QUICK["inverse"]))
    assert after == ["evaluate", *args, "--attacks", "natural", "autoattack"]


def test_runs_side_by_side(run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(run_copy.path)
    assert following(call(capsys, "compare", run)) == ["report", run]
    for form in ("--csv", "--markdown"):
        assert "next:" not in call(capsys, "compare", run, form).out  # another program reads it


def test_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert following(call(capsys, "data", "fetch", "digits")) == ["train", "digits-resnet8-uiat"]
    place = ["--data-dir", str(tmp_path)]
    assert following(call(capsys, "data", "fetch", "digits", *place)) == ["train", "digits-resnet8-uiat", *place]


def test_claims_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert following(call(capsys, "reproduce", "claims", *out)) == ["reproduce", "all", "--scale", "smoke", *out]


def test_tables_lead_to_claims_and_single_runs_to_tables(tmp_path: Path) -> None:
    out = str(tmp_path)
    job = plan_job(Reproduce(("table6",), out=out))
    assert next_command(job) == ["uiat", "reproduce", "claims", "--scale", "smoke", "--out", out]
    one = replace(job, options=replace(job.options, cell=(job.cells[0].key,)))
    assert next_command(one) == ["uiat", "reproduce", "table6", "--scale", "smoke", "--out", out]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "config.json").touch()
    assert next_command(plan_job(Reproduce(("claims",), out=out))) == ["uiat", "report", out]
