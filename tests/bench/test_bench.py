"""`uiat bench`: passes as stated, ratios as they must be, files that open."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.bench_setting import CPU, SETTING
from tests.support.calls import call, refused
from uiat.bench.baselines import BarePass
from uiat.bench.costs import peak_bytes
from uiat.bench.race import race
from uiat.bench.timed import Phase, TimedMethod, counted, timed_method
from uiat.errors import UserError
from uiat.methods import METHODS, Method, MethodConfig
from uiat.methods.passes import Need
from uiat.models import MODELS
from uiat.types import DataSpec


@dataclass(frozen=True)
class Plain:
    """A network with nothing to fold."""

    def build(self, data: DataSpec) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(data.numel, data.num_classes))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_makes_the_passes_it_states(name: str) -> None:
    method = timed_method(name, SETTING)
    assert method.stated
    for found, stated in counted(method):
        assert found == stated
    assert sum(phase.share for phase in method.phases) == pytest.approx(1)


def test_one_off_is_an_average_over_a_run() -> None:
    found = timed_method("uiat-oneoff", SETTING)
    assert [round(phase.share, 2) for phase in found.phases] == [0.79, 0.01, 0.2]
    assert sum(phase.share * phase.need.predict for phase in found.phases) == pytest.approx(0.79 + 0.01)
    assert sum(phase.share * phase.need.craft_gradient for phase in found.phases) == pytest.approx(10.01)


@pytest.mark.parametrize(
    ("epoch", "shares"), [(1, [0.01, 0.99]), (100, [0.99, 0.01]), (320, [319 / 320, 1 / 320])], ids=str
)
def test_one_off_in_any_epoch(epoch: int, shares: list[float]) -> None:
    method = METHODS["uiat-oneoff"]
    found = timed_method("uiat-oneoff", SETTING, replace(method, one_off=replace(method.one_off, epoch=epoch)))  # type: ignore
    assert [phase.share for phase in found.phases] == pytest.approx(shares)


def test_a_step_that_makes_more_passes_is_noticed() -> None:
    method = timed_method("sat", SETTING)
    (phase,) = method.phases

    def twice() -> None:
        phase.step()
        assert method.state is not None
        with torch.no_grad():
            method.state.model(torch.rand(6, 3, 8, 8))

    greedy = replace(method, phases=(Phase(1.0, phase.need, twice),))
    ((found, stated),) = counted(greedy)
    assert found["forward"] == stated["forward"] + 1


def test_a_step_that_does_everything_twice_is_noticed() -> None:
    method = timed_method("sat", SETTING)
    (phase,) = method.phases
    greedy = replace(method, phases=(replace(phase, step=lambda: (phase.step(), phase.step())),))
    ((found, stated),) = counted(greedy)
    assert found == {name: 2 * count for name, count in stated.items()}


def test_a_step_that_moves_no_weight_is_not_timed() -> None:
    method = timed_method("sat", SETTING)
    assert method.state is not None
    with torch.no_grad():
        next(method.state.model.parameters()).fill_(torch.nan)
    with pytest.raises(UserError, match="the part 'ce' of the loss is not finite in a step of sat"):
        race([method], 1, CPU)


def test_everybody_takes_a_turn_in_every_round() -> None:
    turns: list[str] = []
    passes = {"update": BarePass(lambda network: turns.append("-"), lambda: nullcontext(nn.Identity()))}
    methods = [
        TimedMethod(name, (Phase(1.0, Need(update=1), lambda name=name: turns.append(name)),), bare=passes)  # type: ignore[misc]
        for name in "abc"
    ]
    times = race(methods, 3, CPU)
    assert "".join(turns) == "-c-a-b" + "-a-b-c" + "-b-c-a" + "-c-a-b"
    assert {len(rounds.seconds) for rounds in (*times.steps.values(), *times.bare.values())} == {3}


def test_peak_memory_is_what_was_held_at_once() -> None:
    def work() -> None:
        a = torch.ones(1000, 1000)
        b = a + 1
        del a
        c = b + 1  # the third, when the first is gone
        del b, c

    assert peak_bytes(work, CPU) == pytest.approx(8e6, rel=0.01)


@dataclass(frozen=True)
class Unstated(MethodConfig):
    """A method of one's own that says no more than it must."""

    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> Method:
        return METHODS["sat"].build(data, seed=seed)


def test_a_method_that_states_nothing_is_counted() -> None:
    found = timed_method("unstated", SETTING, Unstated())
    sat = timed_method("sat", SETTING)
    assert not found.stated
    assert [phase.need.counts for phase in found.phases] == [phase.need.counts for phase in sat.phases]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "--model", "resnet8", "--model.width", "2", "--batch-size", "8", "--rounds", "2", "--size", "8"]
    files = ["--json", str(tmp_path / "b.json"), "--figure", str(tmp_path / "b.png")]
    found = call(capsys, *words, "--methods", "sat", "uiat-oneoff", *files)
    assert found.code == 0, found.err
    for word in ("literal trades", "uiat-oneoff", "/bare"):
        assert word in found.out
    content = json.loads((tmp_path / "b.json").read_text())
    assert [line["name"] for line in content["lines"]][-2:] == ["sat", "uiat-oneoff"]
    assert all(line["as_stated"] for line in content["lines"])
    assert content["lines"][3]["counts"] == [{"forward": 11, "input_backward": 10, "weight_backward": 1}]
    assert len(content["rounds"]["steps"]["sat"]) == len(content["rounds"]["bare_passes"]["sat"]) == 2
    assert content["doubt"] == "fewer than 3 rounds cannot show whether times agree: take more."
    assert content["doubt"] in found.out
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    assert "can be folded" not in found.out


def test_the_command_says_what_is_unlike(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "plain", Plain())
    peaks = iter([3, 1, 5, 9, 2])
    monkeypatch.setattr("uiat.cli.bench.peak_bytes", lambda *_: next(peaks) * 10**6)
    words = ["bench", "--model", "plain", "--batch-size", "8", "--rounds", "1", "--size", "8", "--precision", "bf16"]
    found = call(capsys, *words, "--methods", "natural", "sat", "uiat-oneoff", "--no-references")
    assert found.code == 0, found.err
    text = " ".join(found.out.split())
    assert "bf16, literal references in fp32, not compiled" in text
    assert "attacks of sat, uiat-oneoff ran unfolded" in found.err  # natural training has none
    (line,) = [line for line in found.out.splitlines() if line.startswith("│uiat-oneoff")]
    assert line.rstrip("│").split("│")[-1].strip() == "9"


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown method 'uait': did you mean 'uiat'?" in refused(capsys, "bench", "--methods", "uait")
    assert "--rounds is 0: give at least 1" in refused(capsys, "bench", "--rounds", "0")
    assert "less than a batch of 32" in refused(capsys, "bench", "--samples", "5")
    assert "there is no such folder" in refused(capsys, "bench", "--json", str(tmp_path / "no" / "b.json"))
