"""Whole runs on two processes: started, stopped, killed, and resumed with another number of processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from uiat.cli import main
from uiat.cli.launch import cores
from uiat.io import write_sealed
from uiat.runs.run_folder import RunFolder

pytestmark = pytest.mark.skipif(cores() < 2, reason="needs two cores")
TINY = ["--data.subset", "150", "--model.width", "4", "--model.blocks", "1", "1", "--train.batch-size", "32"]
TINY += ["--method.attack.steps", "2", "--validate.steps", "2", "--train.epochs", "4", "--train.log-every", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]


def uiat(*args: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "uiat", *args]
    return subprocess.run(command, capture_output=True, text=True, env=environment or ENVIRONMENT, check=False)


def lines(run: Path) -> list[dict[str, object]]:
    """The metrics without times."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in RunFolder.open(run).read_metrics()]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run on two processes."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    done = uiat("train", "--processes", "2", "--out", str(out), *TINY)
    assert done.returncode == 0, done.stderr
    assert "done; next: uiat evaluate" in done.stdout
    assert done.stdout.count("epoch 4/4") == 1, "one process speaks"
    return out


def check_equal(run: Path, unbroken: Path) -> None:
    assert lines(run) == lines(unbroken)
    for name in ("best.safetensors", "last.safetensors"):
        ours, theirs = load_file(run / name), load_file(unbroken / name)
        assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=1e-6) for key in theirs)


def test_a_run_on_two_processes_is_a_run(unbroken: Path) -> None:
    card = json.loads((unbroken / "result.json").read_text())
    assert card["processes"] == 2
    assert [line["epoch"] for line in lines(unbroken) if line["kind"] == "epoch"] == [1, 2, 3, 4]
    assert main(["evaluate", str(unbroken)]) == 0


@pytest.mark.faults
def test_torchrun_begins_a_run_and_survives_a_death(unbroken: Path, tmp_path: Path) -> None:
    """torchrun restarts a killed rank once, and the run resumes from its last checkpoint."""
    out = tmp_path / "run"
    command = [*TORCHRUN, "-m", "tests.support.moments", "train", "digits-resnet8-uiat", "--out", str(out), *TINY]
    death = {**ENVIRONMENT, "DIE_RANK": "1", "DIE_STEP": "7"}
    done = subprocess.run(command, capture_output=True, text=True, env=death, check=False)
    assert done.returncode == 0, done.stderr
    assert "resuming at epoch" in done.stderr
    assert done.stderr.count("uiat: process 0 lost the connection") == 1
    assert "Traceback" not in done.stderr
    check_equal(out, unbroken)


@pytest.mark.slow
def test_an_error_is_reported_once_and_not_retried(unbroken: Path, tmp_path: Path) -> None:
    """torchrun would restart the processes for any exit code but 0; the launcher still exits with 2."""
    out = tmp_path / "run"
    shutil.copytree(unbroken, out)
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (out / name).write_bytes(b"damaged")
    done = uiat("train", "--resume", str(out), "--processes", "2")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("uiat: ") == 1
    assert "in another folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stop_saves_and_another_number_of_processes_resumes(unbroken: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    slow = ["--train.epochs", "400", "--train.checkpoint-minutes", "1"]
    command = [sys.executable, "-m", "uiat", "train", "--processes", "2", "--out", str(out), *TINY, *slow]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    deadline = time.monotonic() + 1800
    while not (out / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=1800)
    assert process.returncode == 130, errors
    assert "all is saved" in errors
    assert said.count(f"resume with: uiat train --resume {out}") == 1
    assert "Traceback" not in errors
    stopped = torch.load(out / "checkpoint.pt", weights_only=True)
    config = json.loads((out / "config.json").read_text())
    for known in (config, stopped["provenance"]["config"]):
        known["train"]["epochs"] = stopped["epoch"]  # as if it had been planned with fewer epochs
    (out / "config.json").write_text(json.dumps(config))
    write_sealed(out / "checkpoint.pt", stopped)
    assert main(["train", "--resume", str(out)]) == 0
    assert [line["epoch"] for line in lines(out) if line["kind"] == "epoch"] == list(range(1, stopped["epoch"] + 1))


def test_processes_end_with_their_launcher(tmp_path: Path) -> None:
    """Also after SIGKILL; a module in the current folder is found if it is named, and shadows no module of Python."""
    run, temporary = tmp_path / "run", tmp_path / "tmp"
    temporary.mkdir()
    for name in ("random", "tempfile", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    (tmp_path / "my_log.py").write_text("def make(run, config):\n    return lambda moment: None\n")
    flags = ["--train.epochs", "2000", "--train.checkpoint-minutes", "0", "--log", "my_log:make"]
    command = [sys.executable, "-P", "-m", "uiat", "train", "--processes", "2", "--out", str(run), *TINY, *flags]
    environment = {**ENVIRONMENT, "TMPDIR": str(temporary)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes)  # type: ignore[call-overload]
    deadline = time.monotonic() + 1800
    while not (run / "checkpoint.pt").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    process.kill()
    said, errors = process.communicate(timeout=1800)  # ends when the last process has closed its output
    assert process.returncode == -signal.SIGKILL, errors
    assert "shadowed" not in errors
    assert "all is saved" in errors
    assert said.count("resume with: uiat train --resume") == 1
    assert not list(temporary.glob("torchelastic_*"))
    assert not list(temporary.glob("uiat-*"))


@pytest.mark.slow
def test_batch_statistics_of_shares_do_as_well(tmp_path: Path) -> None:
    """With BatchNorm two processes are not one to the last digit (tests/distributed/test_equality.py has none); they
    learn all the same: chance is 0.1, and five epochs reach some 0.9 and 0.5."""
    flags = ["--train.epochs", "5", "--model.width", "8", "--method.attack.steps", "4", "--processes", "2"]
    assert uiat("train", "digits-resnet8-sat", "--out", str(tmp_path / "run"), *flags).returncode == 0
    best = json.loads((tmp_path / "run" / "result.json").read_text())["best"]
    assert best["val_natural"] > 0.4
    assert best["val_robust"] > 0.2


def test_an_evaluation_is_shared(unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes give the same verdicts as one (of attacks whose random numbers do not depend on the batch)."""
    flags = ["--attacks", "natural", "pgd-3-2", "apgd-ce", "--data.test-subset", "61", "--exact"]
    args = ["evaluate", str(unbroken), *flags, "--save-adversaries"]
    assert main([*args, str(tmp_path / "one")]) == 0
    assert capsys.readouterr().out.count("accuracy") == 1
    command = [*TORCHRUN, "-m", "uiat", *args, str(tmp_path / "two")]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("accuracy") == 1
    one, two = load_file(tmp_path / "one"), load_file(tmp_path / "two")
    assert one.keys() == two.keys()
    for key in ("natural/correct", "pgd-3-2/correct", "pgd-3-2/x_adv", "y"):
        torch.testing.assert_close(two[key], one[key], rtol=0, atol=1e-6)
    assert (one["apgd-ce/correct"] != two["apgd-ce/correct"]).double().mean() <= 0.1
    assert not list(unbroken.glob("evaluation-*"))
