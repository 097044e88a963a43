"""`uiat bench`: passes as stated, ratios as they must be, files that open."""

import json
from pathlib import Path

import pytest
import torch

from tests.cli.calls import call, refused
from uiat.bench import reference
from uiat.bench.entrants import Course, Entrant, Phase, counted, enter
from uiat.bench.memory import peak_bytes
from uiat.bench.need import Need, need
from uiat.bench.race import Times, race
from uiat.methods import METHODS, TRADES
from uiat.models import ResNet
from uiat.types import Batch, Clock, DataSpec

CPU = torch.device("cpu")
COURSE = Course(ResNet(blocks=(1,), width=2), DataSpec(3, 20, (3, 8, 8)), 6, CPU)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_makes_the_passes_it_states(name: str) -> None:
    entrant = enter(name, COURSE)
    for found, stated in counted(entrant):
        assert found == stated
    assert sum(phase.share for phase in entrant.phases) == pytest.approx(1)


def test_one_off_is_an_average_over_a_run() -> None:
    found = enter("uiat-oneoff", COURSE)
    assert [round(phase.share, 2) for phase in found.phases] == [0.79, 0.01, 0.2]
    assert found.need.predict == pytest.approx(0.79 + 0.01)
    assert found.need.craft_gradient == pytest.approx(10.01)


def test_a_step_that_makes_more_passes_is_noticed() -> None:
    entrant = enter("sat", COURSE)
    (phase,) = entrant.phases

    def twice() -> None:
        phase.step()
        assert entrant.state is not None
        with torch.no_grad():
            entrant.state.model(torch.rand(6, 3, 8, 8))

    greedy = Entrant("greedy", (Phase(1.0, phase.need, twice),), entrant.state)
    ((found, stated),) = counted(greedy)
    assert found["forward"] == stated["forward"] + 1


def test_the_literal_trades_is_trades() -> None:
    """The reference is slow, not wrong: with the same start, its step is the method's."""
    torch.manual_seed(0)
    ours = ResNet(blocks=(1,), width=4).build(COURSE.spec).double()
    theirs = ResNet(blocks=(1,), width=4).build(COURSE.spec).double()
    theirs.load_state_dict(ours.state_dict())
    g = torch.Generator().manual_seed(1)
    x, y = torch.rand(6, 3, 8, 8, generator=g, dtype=torch.double), torch.tensor([0, 1, 2, 0, 1, 2])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs)]
    method = TRADES().build(COURSE.spec)
    original, noise = torch.randn_like, torch.randn(x.shape, generator=g, dtype=x.dtype)

    class Draws:
        def normal(self, purpose: str, like: torch.Tensor) -> torch.Tensor:
            return noise

    import uiat.methods.method as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn_like", lambda like: noise)
        patch.setattr(module, "Draws", lambda *_: Draws())
        reference.trades(theirs, optimizers[1])(x, y)
        ours.train()
        method(ours, Batch(x, y), Clock(1, 0, 2)).total.backward()
        optimizers[0].step()
    assert torch.randn_like is original
    for mine, literal in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, literal, rtol=1e-9, atol=1e-11)


def test_ratios_are_medians_of_rounds() -> None:
    times = Times({"a": [1.0, 9.0, 3.0]}, passes={"update": [1.0, 2.0, 1.0], "predict": [0.5, 1.0, 0.5]})
    assert times.bare(Need(update=1, predict=2)) == [2.0, 4.0, 2.0]
    assert times.ratio("a", times.bare(Need(update=1, predict=2))) == 1.5


def test_everybody_takes_a_turn_in_every_round() -> None:
    turns: list[str] = []
    entrants = [Entrant(name, (Phase(1.0, Need(), lambda name=name: turns.append(name)),)) for name in "abc"]  # type: ignore[misc]
    times = race(entrants, {"update": lambda: turns.append("-")}, 3, CPU)
    assert "".join(turns) == "-c-a-b" + "-a-b-c" + "-b-c-a" + "-c-a-b"
    assert {len(values) for values in times.steps.values()} == {3}


def test_peak_memory_is_what_was_held_at_once() -> None:
    def work() -> None:
        a = torch.ones(1000, 1000)
        b = a + 1
        del a
        c = b + 1  # the third, when the first is gone
        del b, c

    assert peak_bytes(work, CPU) == pytest.approx(8e6, rel=0.01)


@pytest.mark.parametrize("clock", [Clock(1, 0, 10), Clock(8, 0, 10), Clock(9, 0, 10)])
def test_an_unknown_method_states_nothing(clock: Clock) -> None:
    with pytest.raises(TypeError, match="states no passes"):
        need(object(), clock)  # type: ignore[arg-type]


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
    assert len(content["rounds"]["steps"]["sat"]) == 2
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown method 'uait': did you mean 'uiat'?" in refused(capsys, "bench", "--methods", "uait")
    assert "--rounds is 0: give at least 1" in refused(capsys, "bench", "--rounds", "0")
    assert "less than a batch of 128" in refused(capsys, "bench", "--samples", "5")
    assert "there is no such folder" in refused(capsys, "bench", "--json", str(tmp_path / "no" / "b.json"))
