"""`uiat bench`: interleaved timing, peak memory, and the command."""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.bench import CPU, SETTING
from tests.support.calls import call, missing_facts, refused
from uiat.bench.bare_passes import BarePass
from uiat.bench.cost_estimate import peak_bytes
from uiat.bench.interleaved_timing import time_methods
from uiat.bench.timed_method import Phase, TimedMethod, timed_method
from uiat.errors import UserError
from uiat.models import MODELS
from uiat.types import DataSpec


@dataclass(frozen=True)
class Plain:
    """A network with nothing to fold."""

    def build(self, data: DataSpec) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(data.numel, data.num_classes))


def test_a_step_that_moves_no_weight_is_not_timed() -> None:
    method = timed_method("sat", SETTING)
    assert method.state is not None
    with torch.no_grad():
        next(method.state.model.parameters()).fill_(torch.nan)
    with pytest.raises(UserError, match=r"'ce' .*finite .*sat"):
        time_methods([method], 1, CPU)


def test_every_method_is_timed_in_every_round() -> None:
    turns: list[str] = []
    passes = {"update": BarePass(lambda network: turns.append("-"), lambda: nullcontext(nn.Identity()))}
    methods = [
        TimedMethod(name, (Phase(1.0, lambda name=name: turns.append(name), kinds={"update": 1}),), bare=passes)  # type: ignore[misc]
        for name in "abc"
    ]
    times = time_methods(methods, 3, CPU)
    assert "".join(turns) == "-c-a-b" + "-a-b-c" + "-b-c-a" + "-c-a-b"
    assert {len(rounds.seconds) for rounds in (*times.steps.values(), *times.bare.values())} == {3}


def test_peak_memory_is_what_was_held_at_once() -> None:
    def work() -> None:
        a = torch.ones(1000, 1000)
        b = a + 1
        del a
        c = b + 1  # the third, after the first is freed
        del b, c

    assert peak_bytes(work, CPU) == pytest.approx(8e6, rel=0.01)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["bench", "--model", "resnet8", "--model.width", "2", "--batch-size", "8", "--rounds", "2", "--size", "8"]
    files = ["--json", str(tmp_path / "b.json"), "--figure", str(tmp_path / "b.png")]
    found = call(capsys, *args, "--methods", "sat", "uiat-oneoff", *files)
    assert found.code == 0, found.err
    for word in ("literal trades", "uiat-oneoff", "/bare"):
        assert word in found.out
    content = json.loads((tmp_path / "b.json").read_text())
    assert [line["name"] for line in content["lines"]][-2:] == ["sat", "uiat-oneoff"]
    assert content["schema"] == 3
    assert content["lines"][3]["counts"] == [{"forward": 11, "input_backward": 10, "weight_backward": 1}]
    assert len(content["rounds"]["steps"]["sat"]) == len(content["rounds"]["bare_passes"]["sat"]) == 2
    assert missing_facts(content["doubt"], "3") == []
    assert content["doubt"] in found.out
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    assert "can be folded" not in found.out


def test_the_command_says_what_is_unlike(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "plain", Plain())
    peaks = iter([3, 1, 5, 9, 2])
    monkeypatch.setattr("uiat.cli.bench.peak_bytes", lambda *_: next(peaks) * 10**6)
    args = ["bench", "--model", "plain", "--batch-size", "8", "--rounds", "1", "--size", "8", "--precision", "bf16"]
    found = call(capsys, *args, "--methods", "natural", "sat", "uiat-oneoff", "--no-references")
    assert found.code == 0, found.err
    text = " ".join(found.out.split())
    assert "bf16, literal references in fp32, not compiled" in text
    assert "attacks of sat, uiat-oneoff" in found.err  # natural training has none
    (line,) = [line for line in found.out.splitlines() if line.startswith("│uiat-oneoff")]
    assert line.rstrip("│").split("│")[-1].strip() == "9"


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert missing_facts(refused(capsys, "bench", "--methods", "uait"), "uait uiat") == []
    assert missing_facts(refused(capsys, "bench", "--rounds", "0"), "--rounds 0 1") == []
    assert missing_facts(refused(capsys, "bench", "--samples", "5"), "--samples 5 32") == []
    assert str(tmp_path / "no") in refused(capsys, "bench", "--json", str(tmp_path / "no" / "b.json"))
