"""Every cell is run once: after a kill, with two commands at once, with workers, and if one of them fails."""

import json
import os
import re
import signal
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.calls import call, missing_facts, refused
from tests.support.moments import LINE
from tests.support.tiny import fork_command, tiny_scale
from uiat.cli import main
from uiat.engine import loop
from uiat.reproduce import runner
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.scales import SCALES
from uiat.reproduce.workers import SlurmJob


def begun(text: str) -> list[str]:
    """Return the runs that a process worked on."""
    return re.findall(r"^run \d+ of \d+ .*: (\S+)$", text, re.MULTILINE)


def trained(out: Path) -> dict[str, tuple[int, bytes]]:
    """Return the time stamp of the card and the weights of each finished run."""
    runs = [path.parent for path in out.glob("runs/*/result.json")]
    return {r.name: ((r / "result.json").stat().st_mtime_ns, (r / "last.safetensors").read_bytes()) for r in runs}


def test_everything_promised_is_there(made: Path) -> None:
    for name in EXPERIMENTS:
        endings = ("md", "csv", "json", "tex", *(("svg", "png") if name.startswith("fig") else ()))
        for ending in endings:
            assert (made / f"{name}.{ending}").stat().st_size > 100, f"{name}.{ending}"
    assert (made / "claims.md").exists()
    index = (made / "index.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", index)
    assert len(links) == 12 * 4 + 8 * 6 + 2 + 4, "files of tables, of figures, of claims, and of benchmarks"
    assert all((made / link).exists() for link in links)
    assert not list(made.glob("runs/*/failed.json"))


def test_a_second_time_makes_nothing(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = trained(made)
    with tiny_scale():
        found = call(capsys, "reproduce", "table1", "fig5", "--jobs", "0", "--out", str(made))
    assert (found.code, begun(found.err)) == (0, [])
    assert trained(made) == before


def test_killed_and_started_again(tmp_path: Path) -> None:
    """Killed in the third training, between two epochs: two runs are unchanged, one resumes, two are trained."""
    out = tmp_path / "out"
    args = ("reproduce", "table6", "--jobs", "0", "--out", str(out))
    code, output = fork_command(tmp_path / "1.txt", *args, kill_at=f"{LINE}:8").end()
    assert code == -signal.SIGKILL, output
    assert len(begun(output)) == 3
    kept = trained(out)
    assert len(kept) == 2
    code, output = fork_command(tmp_path / "2.txt", *args).end()
    assert code == 0, output
    after = trained(out)
    assert len(after) == 5
    assert {name: after[name] for name in kept} == kept
    assert len(begun(output)) == 3
    assert "resuming at epoch" in output


def test_killed_in_a_measurement(tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ("reproduce", "table6", "--only", "iat", "--jobs", "0", "--out", str(out))
    code, output = fork_command(tmp_path / "1.txt", *args, kill_at="uiat.evaluation.ledger.write_tensors:1").end()
    assert code == -signal.SIGKILL, output
    kept = trained(out)
    assert len(kept) == 1
    assert len(list(out.glob("runs/*/measures/*.unfinished.safetensors"))) == 1
    code, output = fork_command(tmp_path / "2.txt", *args).end()
    assert code == 0, output
    assert trained(out) == kept
    assert len(list(out.glob("runs/*/measures/*.json"))) == 3
    assert not list(out.glob("runs/*/measures/*.unfinished.safetensors"))


def test_two_commands_at_once_share_the_work(tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ("reproduce", "table6", "--jobs", "0", "--out", str(out))
    pair = [fork_command(tmp_path / f"{k}.txt", *args) for k in range(2)]
    ends = [process.end() for process in pair]
    assert [code for code, _ in ends] == [0, 0], ends
    made = [begun(output) for _, output in ends]
    assert set(Counter(made[0] + made[1]).values()) == {1}, "a run was made twice"
    assert set(made[0] + made[1]) == set(trained(out))
    assert "–" not in (out / "table6.md").read_text(encoding="utf-8").split("Scale")[0]


def wait_for(pattern: str, folder: Path) -> None:
    until = time.monotonic() + 1800
    while not list(folder.glob(pattern)):
        assert time.monotonic() < until, f"no {pattern}"
        time.sleep(0.02)


def test_workers_and_a_stop(tmp_path: Path) -> None:
    """SIGTERM while two workers train: all is saved, exit code 143, and the same command resumes."""
    out = tmp_path / "out"
    args = ("reproduce", "table6", "--out", str(out), "--jobs")
    process = fork_command(tmp_path / "1.txt", *args, "2")
    wait_for("runs/*/checkpoint.pt", out)
    os.kill(process.pid, signal.SIGTERM)
    code, output = process.end()
    assert code == 128 + signal.SIGTERM, output
    assert "run the same command to resume" in output
    kept = trained(out)
    assert len(kept) < 5
    assert {path.name for path in (out / "logs").iterdir()} == {"worker-1.txt", "worker-2.txt"}
    code, output = fork_command(tmp_path / "2.txt", *args, "0").end()
    assert code == 0, output
    after = trained(out)
    assert len(after) == 5
    assert {name: after[name] for name in kept} == kept
    assert "table6.tex" in output


@pytest.mark.slow
def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = fork_command(tmp_path / "1.txt", "reproduce", "all", "--jobs", "1", "--out", str(out))
    wait_for("runs/*/checkpoint.pt", out)
    os.kill(process.pid, signal.SIGKILL)
    process.end()
    log, until = out / "logs" / "worker-1.txt", time.monotonic() + 1800
    while not log.read_text(encoding="utf-8").rstrip().endswith("stopped"):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert len(trained(out)) < 40


@pytest.mark.slow
def test_workers_make_everything(tmp_path: Path) -> None:
    """Two worker processes from beginning to end; the progress of all of them is one line."""
    out = tmp_path / "out"
    code, output = fork_command(tmp_path / "1.txt", "reproduce", "all", "--jobs", "2", "--out", str(out)).end()
    assert code == 0, output
    logs = [begun(path.read_text(encoding="utf-8")) for path in (out / "logs").iterdir()]
    assert all(logs)
    assert sorted(logs[0] + logs[1]) == sorted(trained(out))


def test_a_failure_stops_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = loop.train

    def train(config: object, *rest: object, **named: object) -> bool:
        if getattr(getattr(config, "method", None), "omega", 0):
            raise RuntimeError("the network caught fire")
        return original(config, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "train", train)
    args = ("reproduce", "table1", "--only", "trades", "sat", "--jobs", "0", "--out", str(tmp_path))
    with tiny_scale():
        found = call(capsys, *args)
        assert found.code == 1
        assert (
            len(re.findall(r"^failed: digits-trades-\S+: RuntimeError: the network caught fire$", found.err, re.M)) > 0
        )
        rows = (tmp_path / "table1.md").read_text(encoding="utf-8").splitlines()
        assert sum(row.startswith("| TRADES | – (82.45)") for row in rows) == 1
        assert not any(row.startswith("| SAT | –") for row in rows)
        (reason,) = tmp_path.glob("runs/*/failed.json")
        assert "caught fire" in json.loads(reason.read_text(encoding="utf-8"))["reason"]
        monkeypatch.setattr(runner, "train", original)
        again = call(capsys, *args)
    assert again.code == 0
    assert [name.split("-s0")[0] for name in begun(again.err)] == ["digits-trades"]
    assert not reason.exists()


def test_a_plan_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tiny_scale():
        found = call(capsys, "reproduce", "table6", "--plan", "--out", str(tmp_path / "new"), "--seeds", "2")
    assert found.code == 0
    assert not (tmp_path / "new").exists()
    lines = found.out.splitlines()
    commands = [line.split() for line in lines if line.startswith("uiat reproduce table6 --scale")]
    assert len(commands) == 10
    assert "10 runs, 10 to make" in found.out
    keys = {args[-1] for args in commands}
    assert len(keys) == 10
    runs = {line.split(" · ")[0].rpartition("-")[2]: line.split(" · ")[1:3] for line in lines if " · new · " in line}
    assert runs.keys() == keys
    names = ["1: none (instance-wise)", "2: UAG", "3: UAG + FR", "4: UAG + IAM", "5: UAG + FR + IAM"]
    assert sorted(runs.values()) == sorted([f"table6: {name}", "new"] for name in names for _ in range(2))


def test_a_plan_names_what_each_run_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("table1", "table3", "table5", "table6", "fig2", "fig3", "figS2")
    with tiny_scale():
        found = call(capsys, "reproduce", *names, "--plan", "--out", str(tmp_path / "new"))
    labels = [line.split(" · ")[1] for line in found.out.splitlines() if " · new · " in line]
    for part in ("table1: SAT", "table3: ε = 0.15, UIAT", "table5: RS-FGSM + UIAT", "table6: 2: UAG"):
        assert part in labels
    for part in ("HAT's helper", "fig2: PGD-AT, doubled epochs", "fig3: λ = 1", "figS2: γ = 0.5", "figS2: T' = 34 %"):
        assert part in labels
    shared = next(label for label in labels if label.startswith("table1: UIAT;"))
    assert shared == "table1: UIAT; table6: 5: UAG + FR + IAM; figS2: β = 1, γ = 0.9, T = 75 %"


@pytest.mark.parametrize(
    ("args", "facts"),
    [
        (["table7"], "table7"),
        ([], "reproduce"),
        (["table1", "--only", "uait"], "uait uiat"),
        (["table1", "--seeds", "0"], "--seeds 0 1"),
        (["table1", "--jobs", "-1"], "--jobs -1"),
        (["--cell", "abc"], "abc smoke"),
        (["table1", "--submit", "debug", "--submit-with", "fast"], "fast NAME=VALUE"),
    ],
)
def test_errors_are_one_message(args: list[str], facts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert missing_facts(refused(capsys, "reproduce", *args), facts) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with tiny_scale():
        message = refused(capsys, "reproduce", "table6", "--jobs", "0", "--out", str(tmp_path / "file"))
    assert "cannot write the folder" in message
    assert os.listdir(tmp_path) == ["file"]


def test_runs_that_are_submitted_to_this_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("reproduce", "fig1", "--only", "natural", "--out", str(tmp_path), "--submit", "debug", "--jobs", "1")
    with tiny_scale():
        found = call(capsys, *args, "--submit-with", "timeout_min=5")
    assert found.code == 0, found.err
    assert not list(tmp_path.glob("logs/worker-*.txt"))
    assert (tmp_path / "fig1.png").exists()


class FakeSlurm:
    """Stands in for submitit's executor: a job is run at once."""

    def __init__(self, folder: str, cluster: str):
        assert cluster == "slurm"
        self.parameters: dict[str, object] = {}

    def update_parameters(self, **parameters: object) -> None:
        assert parameters == {"name": "uiat", "timeout_min": 5, "slurm_partition": "gpu"}

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()

    def submit(self, job: SlurmJob) -> SimpleNamespace:
        assert job() == 0
        return SimpleNamespace(job_id=f"7_{job.cell.config.seed}")


def test_slurm_gets_a_job_for_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> None:
        assert command[1:4] == ["-P", "-m", "uiat"]
        commands.append(command[4:])
        assert main(command[4:]) == 0

    monkeypatch.setattr("uiat.reproduce.workers.subprocess", SimpleNamespace(run=run))
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=FakeSlurm))
    args = ("reproduce", "table1", "--only", "sat", "natural", "mart", "--out", str(tmp_path))
    slurm = ("--submit", "slurm", "--submit-with", "timeout_min=5", "slurm_partition=gpu")
    with tiny_scale():
        found = call(capsys, *args, *slurm)
        assert found.code == 0, found.err
        assert found.err.count("submitted as 7_0: digits-") == 2 == len(commands)
        assert all("--cell" in command for command in commands)
        assert not (tmp_path / "table1.md").exists()
        assert "submitted" not in call(capsys, *args, *slurm).err
        again = call(capsys, *args)
    assert begun(again.err) == []
    assert (tmp_path / "table1.md").exists()


def test_without_submitit_there_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    message = refused(capsys, "reproduce", "table1", "--only", "sat", "--out", str(tmp_path), "--submit", "slurm")
    assert "pip install submitit" in message


def test_a_card_of_an_unfinished_run_is_not_a_finished_run(tmp_path: Path) -> None:
    store = Store(Cell(SCALES["smoke"].config("sat")), tmp_path)
    store.path.mkdir(parents=True)
    store.run.result.write_text('{"schema": 1, "evaluations": []}', encoding="utf-8")
    assert not store.trained
    store.run.result.write_text('{"schema": 1, "config": {}}', encoding="utf-8")
    assert store.trained
    assert store.finished
