"""Every method resumes in the same bits, within an epoch and at its end."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.moments import STEP, Killed, at_call, die
from tests.support.runs import STEPS, assert_same, begin, finished, resume_run, snapshot, tiny, unbroken
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
    run = stopped_and_resumed(config, tmp_path / "run", STEPS + 2, STEPS)
    assert_same(run, unbroken(config))
    if method == "hat":  # the helper is a separate run, in which the stops happened
        assert_same(RunFolder.open(run.helper), unbroken(tiny("natural", checkpoint_minutes=0.0)))


def test_hat_resumes_after_its_helper(tmp_path: Path) -> None:
    config = tiny("hat", checkpoint_minutes=0.0)
    run = RunFolder.create(tmp_path / "run", config)
    helper = run.helper / "checkpoint.pt"
    with at_call(STEP, 3 * STEPS + 1, die), pytest.raises(Killed):
        resume_run(run)
    before = helper.read_bytes()
    with at_call(STEP, STEPS + 2, die), pytest.raises(Killed):
        resume_run(run)
    assert resume_run(run)
    assert helper.read_bytes() == before  # not trained a second time
    assert_same(run, unbroken(config))


def test_hat_with_a_given_helper(tmp_path: Path) -> None:
    natural, hat = finished(tiny("natural")), tiny("hat", checkpoint_minutes=0.0)
    assert isinstance(hat.method, HAT)
    folder, file = (replace(hat, method=replace(hat.method, helper=str(p))) for p in (natural.path, natural.best))
    run = stopped_and_resumed(folder, tmp_path / "folder", STEPS + 2)
    assert not run.helper.exists()
    assert_same(run, unbroken(folder))
    other = snapshot(begin(file, tmp_path / "file"))
    assert [k for k, v in unbroken(folder).items() if k.startswith("/last/") and other[k] != v] == []


def test_helper_epochs(tmp_path: Path) -> None:
    hat = tiny("hat", epochs=2)
    assert isinstance(hat.method, HAT)
    run = begin(replace(hat, method=replace(hat.method, helper_epochs=1)), tmp_path / "run")
    assert len(RunFolder.open(run.helper).read_metrics("epoch")) == 1


def test_a_seed_decides_the_run(tmp_path: Path) -> None:
    """Snapshots of runs with different seeds differ."""
    one = unbroken(tiny("uiat"))
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
