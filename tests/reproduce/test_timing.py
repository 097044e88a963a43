"""Benchmarks: stored by device, robust to disturbances, skipped on a CPU if they take long, run on a quiet machine."""

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.calls import call
from tests.support.tiny import TINY, fork_command, tiny_scale, write_timing
from uiat.bench.interleaved_timing import Rounds, time_methods
from uiat.bench.pass_count import passes_per_image
from uiat.methods import METHODS
from uiat.reproduce import timing
from uiat.reproduce.cell import Cell, Store, held_here
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.output import table_caption
from uiat.reproduce.table import EpochTime, Table, fill
from uiat.reproduce.timing import MOST, SHORT_SECONDS, TableBenchmark, Timing, steps_a_turn

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def short() -> Timing:
    """Return a benchmark of two methods."""
    with tiny_scale():
        return TINY.timing("ResNet-18", ("natural", "uiat-oneoff"))


def result(plan: Timing, path: Path, seconds: float, device: str = "cpu (x86_64)") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"environment": {"device": device}, "seconds_a_step": {m: [seconds] * plan.rounds for m in plan.methods}}
    path.write_text(json.dumps(facts), encoding="utf-8")
    return path


@given(st.lists(st.floats(1e-4, 5.0), min_size=1, max_size=12), st.integers(1, 9))
def test_short_steps_get_an_odd_number_a_turn(seconds: list[float], rounds: int) -> None:
    steps = steps_a_turn(seconds, rounds)
    assert steps % 2 == 1
    assert (steps >= 3) == (max(seconds) < SHORT_SECONDS)
    assert steps <= MOST


def test_a_benchmark_takes_its_repetitions(short: Timing, tmp_path: Path) -> None:
    with tiny_scale():
        short.measure(tmp_path, CPU)
    (path,) = (tmp_path / "timing").iterdir()
    assert path == short.file(tmp_path, CPU)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["steps_a_turn"] in (1, 3, 5, 7)
    for method in short.methods:
        assert len(found["seconds_a_step"][method]) == short.rounds
        assert short.epoch_seconds(method, tmp_path) == [short.steps * s for s in found["seconds_a_step"][method]]
    assert short.estimate(CPU) > 0
    before = path.stat().st_mtime_ns
    with tiny_scale():
        TableBenchmark("table2", short, tmp_path, CPU).run()
        assert path.stat().st_mtime_ns == before, "it is known"
        TableBenchmark("table2", short, tmp_path, CPU, retime=True).run()
    assert path.stat().st_mtime_ns > before


def test_times_belong_to_a_device(short: Timing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-40GB")
    one = result(short, short.file(tmp_path, CPU), 3.0)
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 1)
    assert short.file(tmp_path, CPU) != one
    assert short.is_left(tmp_path, CPU)
    assert short.is_left(tmp_path, GPU), "times of a CPU are no GPU's"
    fast = result(short, short.file(tmp_path, GPU), 1.0)
    assert fast.name == f"{short.name}-cuda-NVIDIA-A100-SXM4-40GB.json"
    other = result(short, short.file(tmp_path, CPU), 2.0)
    os.utime(fast, ns=(0, 0))
    assert short.known(tmp_path) == fast, "a GPU's, though a CPU's are newer"
    assert short.epoch_seconds("natural", tmp_path) == [short.steps] * short.rounds
    other.unlink()
    assert not short.is_left(tmp_path, CPU), "a GPU's are better"
    fast.unlink()
    assert short.known(tmp_path) == one
    one.unlink()
    assert short.epoch_seconds("natural", tmp_path) == []


def test_an_estimate_follows_the_steps(short: Timing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass of a second: natural training takes two an image; one-off UIAT is timed in three phases."""
    monkeypatch.setattr(timing, "pace", lambda *args: (1.0, 1.0, 1.0))
    per_image = {name: sum(passes_per_image(METHODS[name], 100)) / 100 for name in short.methods}
    total = (per_image["natural"] + 3 * per_image["uiat-oneoff"]) * short.batch_size
    assert short.estimate(CPU) == pytest.approx(total * (2 + short.rounds))


def test_a_long_benchmark_needs_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timing, "estimate", lambda self, device: 3700.0)
    with tiny_scale():
        plan = call(capsys, "reproduce", "table2", "--plan", "--out", str(tmp_path))
        assert plan.out.count(" · needs a GPU · 1:01:40 · natural trades hat iat uiat uiat-oneoff") == 3
        found = call(capsys, "reproduce", "table2", "--jobs", "0", "--out", str(tmp_path))
    assert found.code == 0
    (line,) = [line for line in found.err.splitlines() if "need a GPU" in line]
    assert f"`uiat reproduce table2 --scale smoke --out {tmp_path} --device cuda`" in line
    assert "3:05:00" in line
    assert not (tmp_path / "timing").exists()
    row = next(r for r in (tmp_path / "table2.md").read_text("utf-8").splitlines() if r.startswith("| UIAT |"))
    assert row.count("–") == 3


def test_a_plan_has_the_benchmarks(made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with tiny_scale():
        new = call(capsys, "reproduce", "table2", "--plan", "--out", str(tmp_path / "new"))
        done = call(capsys, "reproduce", "table2", "table5", "--plan", "--out", str(made))
        again = call(capsys, "reproduce", "table2", "--plan", "--retime", "--out", str(made))
        without = call(capsys, "reproduce", "table2", "--plan", "--only", "sat", "--out", str(tmp_path / "new"))
    assert len(re.findall(r" · new · \d+:\d\d:\d\d", new.out)) == 3
    assert done.out.count(" · measured on cpu (") == 4
    assert len(re.findall(r" · new · \d+:\d\d:\d\d", again.out)) == 3
    assert "times of" not in without.out
    assert not (tmp_path / "new").exists()


def test_retime(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def measure(self: Timing, out: Path, device: torch.device) -> None:
        calls[-1] += 1
        result(self, self.file(out, device), 1.0)

    monkeypatch.setattr(Timing, "measure", measure)
    args = ("reproduce", "table2", "--jobs", "0", "--out", str(tmp_path))
    with tiny_scale():
        for command in (args, args, (*args, "--retime")):
            calls.append(0)
            assert call(capsys, *command).code == 0
    assert calls == [3, 0, 3]


def test_a_benchmark_waits_for_the_runs_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process holds a run: its name is printed once."""
    store = Store(Cell(TINY.config("sat")), tmp_path)
    said: list[str] = []
    looks = [0]
    monkeypatch.setattr(timing, "QUIET_POLL_SECONDS", 0.01)
    with store.hold() as held:
        assert held
        assert held_here(tmp_path) == [store.path.name], "another handle sees what another process would see"
        (store.path / "cell.lock").write_text("another-machine", encoding="utf-8")
        assert held_here(tmp_path) == [], "a run on another machine disturbs nobody here"
    assert held_here(tmp_path) == []

    def names(out: Path) -> list[str]:
        looks[0] += 1
        return ["sat-1", "sat-2"] if looks[0] < 4 else ["sat-2"] if looks[0] < 6 else []

    monkeypatch.setattr(timing, "held_here", names)
    timing.wait_for_quiet(tmp_path, said.append)
    assert [line.rpartition(": ")[2] for line in said] == ["sat-1, sat-2", "sat-2"]


def test_two_commands_at_once_do_not_time_under_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`table2` beside a command that trains: its benchmark begins when nothing is held any more.

    The other command stands still until the benchmark waits for it, so that it cannot be done before, on any machine.
    """
    out, held, first = tmp_path / "out", [], []
    process = fork_command(tmp_path / "1.txt", "reproduce", "table6", "--only", "iat", "--jobs", "0", "--out", str(out))
    while not held_here(out):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGSTOP)

    def watched(self: Timing, out: Path, device: torch.device) -> None:
        held.append(held_here(out))
        result(self, self.file(out, device), 1.0)

    def waiting(out: Path, say: Any) -> None:
        first.append((out / "table2.md").exists())

        def said(text: str) -> None:
            say(text)
            os.kill(process.pid, signal.SIGCONT)

        timing.wait_for_quiet(out, said)

    monkeypatch.setattr(Timing, "measure", watched)
    monkeypatch.setattr("uiat.cli.reproduce_output.wait_for_quiet", waiting)
    with tiny_scale():
        found = call(capsys, "reproduce", "table2", "--jobs", "0", "--out", str(out))
    os.kill(process.pid, signal.SIGCONT)
    assert process.end()[0] == 0
    assert found.code == 0, found.err
    assert "waiting for 1 runs of other processes: digits-" in found.err
    assert held == [[], [], []]
    assert first == [True], "what there was had been written before the wait"
    assert "–" not in next(r for r in (out / "table2.md").read_text("utf-8").splitlines() if r.startswith("| UIAT |"))


def test_a_turn_is_its_fastest_step(short: Timing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three interleaved steps are slow, which affects no repetition."""
    monkeypatch.setattr(timing, "steps_a_turn", lambda seconds, rounds: 3)

    def timed(*args: Any, **named: Any) -> Any:
        times = time_methods(*args, **named)
        for rounds in times.steps.values():
            rounds.seconds = [[10.0 if k % 3 else seconds for seconds in each] for k, each in enumerate(rounds.seconds)]
            seen.append(rounds)
        return times

    seen: list[Rounds] = []
    monkeypatch.setattr(timing, "time_methods", timed)
    short.measure(tmp_path, CPU)
    for method, rounds in zip(short.methods, seen[2:], strict=True):  # after that of the trial
        assert len(rounds.seconds) == 3 * short.rounds
        turns = [sum(map(float.__mul__, rounds.shares, rounds.seconds[3 * r])) for r in range(short.rounds)]
        assert short.epoch_seconds(method, tmp_path) == pytest.approx([short.steps * turn for turn in turns])
        assert max(turns) < 10


def test_the_fastest_round_is_shown_and_disagreement_said(short: Timing, tmp_path: Path) -> None:
    reading = EpochTime(short, "natural", 1.0)
    assert reading.values(None, tmp_path, 1) == []
    assert short.timing_warning(tmp_path) == ""
    for slow, word in ((1.04, ""), (1.3, "most for natural: 30%")):
        rounds = [short.steps * seconds for seconds in (slow, 9.0, 1.0, slow, 5.0)]
        write_timing(short, {"natural": rounds, "uiat-oneoff": [1.0] * 5}, tmp_path)
        assert reading.values(None, tmp_path, 1) == [pytest.approx(short.steps)]
        assert word in short.timing_warning(tmp_path)
        assert bool(short.timing_warning(tmp_path)) == bool(word)


def test_a_table_of_several_benchmarks_has_one_warning(tmp_path: Path) -> None:
    with tiny_scale():
        table = EXPERIMENTS["table2"](TINY)
        assert isinstance(table, Table)
        for number, each in enumerate(table.timings):
            slow = 1.0 + 0.1 * number
            rounds = {method: [slow if method == "uiat" else 1.0] * 2 + [1.0] for method in each.methods}
            write_timing(each, rounds, tmp_path)
        text = table_caption(fill(table, tmp_path, 1))
    columns = [entry.column for entry in table.entries if isinstance(entry.reading, EpochTime) and entry.row == "UIAT"]
    assert len(columns) == len(table.timings) == 3
    assert text.count("A warning") == 1
    assert f"for 2 of {sum(len(each.methods) for each in table.timings)} (most for UIAT, {columns[-1]}: 20%)" in text
