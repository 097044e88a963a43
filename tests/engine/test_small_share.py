"""The notice of a run whose processes have few images each: BatchNorm's statistics are per process."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from tests.support.runs import begin, tiny
from uiat.engine import setup
from uiat.engine.setup import small_share
from uiat.models import Imported


@pytest.mark.parametrize(
    ("processes", "batch_size", "share"), [(1, 8, None), (8, 128, None), (16, 128, 8), (3, 47, 15), (2, 3, 1)]
)
def test_fewer_than_16(processes: int, batch_size: int, share: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "world", lambda: processes)
    assert small_share(nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)), batch_size) == share
    assert small_share(nn.Sequential(nn.Conv2d(1, 2, 1), nn.GroupNorm(1, 2)), batch_size) is None
    assert small_share(nn.SyncBatchNorm(2), batch_size) is None


@pytest.mark.parametrize(("network", "processes", "notices"), [("", 4, 1), ("LeNet", 4, 0)])
def test_a_run_says_so_once(
    network: str, processes: int, notices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny("natural", epochs=1)
    if network:
        config = replace(config, model=Imported(f"tests.support.networks:{network}"))
    monkeypatch.setattr(setup, "world", lambda: processes)
    run = begin(config, tmp_path / "run")
    assert run.log.read_text(encoding="utf-8").count("each process has 4 images of a batch") == notices
