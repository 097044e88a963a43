"""Every method resumes in the same bits, within an epoch and at its end."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.moments import STEP, Killed, at_call, die
from tests.support.runs import STEPS, assert_same, begin, resume_run, snapshot, tiny
from uiat.config import AnyConfig
from uiat.methods import HAT, METHODS
from uiat.models import MODELS
from uiat.runs.run_folder import RunFolder
from uiat.types import DataSpec


def stopped_and_resumed(config: AnyConfig, path: Path, *steps: int) -> RunFolder:
    """Stop a run at a step, resume it, stop it again after more steps, and so on; then let it finish."""
    run = RunFolder.create(path, config)
    for step in steps:
        with at_call(STEP, step, die), pytest.raises(Killed):
            resume_run(run)
    assert resume_run(run)
    return run


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str, tmp_path: Path) -> None:
    config = tiny(method, checkpoint_minutes=0.0)
    whole = begin(config, tmp_path / "whole")
    expected = snapshot(whole)
    run = stopped_and_resumed(config, tmp_path / "run", STEPS + 2, STEPS)
    assert_same(run, expected)
    if method == "hat":  # the helper is a separate run, in which the stops happened
        assert_same(RunFolder.open(run.helper), snapshot(RunFolder.open(whole.helper)))


@pytest.mark.parametrize("step", [3 * STEPS + 1, 4 * STEPS + 3])
def test_hat_resumes_after_its_helper(step: int, tmp_path: Path) -> None:
    config = tiny("hat", checkpoint_minutes=0.0)
    whole = begin(config, tmp_path / "whole")
    run = RunFolder.create(tmp_path / "run", config)
    with at_call(STEP, step, die), pytest.raises(Killed):
        resume_run(run)
    helper = run.helper / "checkpoint.pt"
    before = helper.read_bytes()
    assert resume_run(run)
    assert helper.read_bytes() == before  # not trained a second time
    assert_same(run, snapshot(whole))


def test_hat_with_a_given_helper(tmp_path: Path) -> None:
    natural = begin(tiny("natural"), tmp_path / "natural")
    hat = tiny("hat", checkpoint_minutes=0.0)
    assert isinstance(hat.method, HAT)
    expected = None
    for kind, path in (("folder", natural.path), ("file", natural.best)):
        config = replace(hat, method=replace(hat.method, helper=str(path)))
        whole = begin(config, tmp_path / kind / "whole")
        assert not whole.helper.exists()
        assert_same(stopped_and_resumed(config, tmp_path / kind / "run", STEPS + 2), snapshot(whole))
        last = {k: v for k, v in snapshot(whole).items() if k.startswith("/last/")}
        assert expected is None or last == expected
        expected = last


def test_hats_own_helper_is_the_natural_run(tmp_path: Path) -> None:
    hat = begin(tiny("hat"), tmp_path / "hat")
    natural = begin(tiny("natural"), tmp_path / "natural")
    assert_same(RunFolder.open(hat.helper), snapshot(natural))


def test_helper_epochs(tmp_path: Path) -> None:
    hat = tiny("hat")
    assert isinstance(hat.method, HAT)
    run = begin(replace(hat, method=replace(hat.method, helper_epochs=1)), tmp_path / "run")
    kinds = [line["kind"] for line in RunFolder.open(run.helper).read_metrics()]
    assert kinds.count("epoch") == 1


def test_a_seed_decides_the_run(tmp_path: Path) -> None:
    """Snapshots of runs with different seeds differ."""
    one = snapshot(begin(tiny("uiat"), tmp_path / "one"))
    other = snapshot(begin(replace(tiny("uiat"), seed=1), tmp_path / "other"))
    assert {name for name in one if name.startswith("/best/") and one[name] != other[name]}


@dataclass(frozen=True)
class Dropping:
    """A network that draws random numbers."""

    rate: float = 0.5

    def build(self, data: DataSpec) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(data.numel, 32), nn.Dropout(self.rate), nn.Linear(32, 10))


def test_dropout_resumes_with_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "dropping", Dropping())
    config = replace(tiny("uiat", checkpoint_minutes=0.0), model=Dropping())
    whole = snapshot(begin(config, tmp_path / "whole"))
    torch.manual_seed(99)
    assert_same(stopped_and_resumed(config, tmp_path / "run", STEPS + 2), whole)
    without = snapshot(begin(replace(config, model=Dropping(0.0)), tmp_path / "without"))
    assert without["/last/1.weight"] != whole["/last/1.weight"]
