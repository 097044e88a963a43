"""Planned pass counts equal those of the finished runs."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.calls import call
from tests.support.tiny import TINY, tiny_scale
from uiat.bench.cost_estimate import images_per_epoch, pace
from uiat.bench.pass_count import DIRECTIONS
from uiat.cli import reproduce_output
from uiat.cli.reproduce_job import Reproduce, plan_job
from uiat.data import load_splits, split_sizes
from uiat.data.data_config import DataConfig
from uiat.methods import METHODS, UIATOneOff
from uiat.reproduce.budget import TYPICAL, cell_passes, measuring_passes, seconds
from uiat.reproduce.cell import Cell, Store, merge, method_name, with_helpers
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.measures import Attacked, Curve
from uiat.reproduce.scales import SCALES


def cells() -> list[Cell]:
    with tiny_scale():
        return merge(cell for build in EXPERIMENTS.values() for cell in build(TINY).cells(1))


def test_the_plan_is_what_happened(made: Path) -> None:
    counted = set()
    for cell in with_helpers(cells(), made):
        config = cell.config
        planned = dict(zip(DIRECTIONS, cell_passes(config), strict=True))
        happened = Store(cell, made).card["training_passes"]
        if config.data.generated.file and isinstance(config.method, UIATOneOff):
            # after T' a batch with a generated image that has no p yet takes one more forward
            late = happened["forward"] - planned["forward"]
            assert 0 <= late <= images_per_epoch(config, split_sizes(config.data).train), cell.name
            happened = {**happened, "forward": planned["forward"]}
        assert happened == planned, cell.name
        counted.add(method_name(config))
    assert counted == set(METHODS)


def test_known_sizes_are_those_of_the_data() -> None:
    config = DataConfig("digits", crop=0)
    splits = load_splits(config)
    found = split_sizes(config)
    assert (found.train, found.test, found.spec) == (len(splits.train), len(splits.test), splits.spec)
    small = DataConfig("digits", subset=100, validation=7, test_subset=20, size=9)
    splits, found = load_splits(small), split_sizes(small)
    assert (found.train, found.test, found.spec) == (len(splits.train), len(splits.test), splits.spec)


def test_times_grow_with_the_work() -> None:
    config = TINY.config("sat")
    small, more = Cell(config), Cell(config, (TINY.attacked("PGD"),))
    (training, measuring), (same, longer) = (seconds(cell, torch.device("cpu")) for cell in (small, more))
    assert training == same > 0
    assert longer > measuring == 0
    model: Any = config.model
    assert pace(model, split_sizes(config.data).spec, torch.device("cpu"))[0] > 0


def test_a_typical_time_is_that_of_a_cascade_with_half_of_the_images() -> None:
    config = SCALES["paper"].config("uiat")
    first, rest = 10_000 * 100, 10_000 * (900 + 1800 + 5000 / 3)  # APGD-CE; APGD-T, FAB-T and Square
    whole, alone = Attacked("autoattack"), Attacked("pgd-20")
    assert measuring_passes(whole, config) == pytest.approx(first + rest)
    assert measuring_passes(whole, config, TYPICAL) == pytest.approx(first + rest / 2)
    assert measuring_passes(alone, config) == measuring_passes(alone, config, TYPICAL) == 10_000 * 20.5
    curve = Curve("autoattack", (-0.1, 0.0, 0.1, 0.2), 10)
    assert measuring_passes(curve, config, TYPICAL) == pytest.approx(10 * (2 * 20.5) + 2 * (first + rest / 2) / 1000)


def test_times_on_a_gpu_are_gpu_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce_output, "seconds_left", lambda cells, out, device, share: 7_200_000.0 * share)
    job = plan_job(Reproduce(("table6",), scale="paper", out=str(tmp_path)))
    found = reproduce_output.total_time(replace(job, device=torch.device("cuda:1")))
    assert found == "2,000.0 GPU-hours at most, typically 1,000.0"


def test_a_plan_of_one_seed_has_the_time_of_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("reproduce", "table6", "--scale", "cpu", "--out", str(tmp_path / "new"), "--plan", "--seeds")
    one, three = (call(capsys, *args, seeds).out.splitlines() for seeds in "13")

    def total(lines: list[str], start: str) -> list[str]:
        (line,) = [line for line in lines if line.startswith(start)]
        return re.findall(r"\d+:\d\d:\d\d", line)

    worst, typical = total(three, "15 runs, 15 to make")
    assert len(worst.split(":")[0]) > len(typical.split(":")[0]) or worst > typical
    assert total(one, "--seeds 3: 15 runs") == [worst, typical]
    assert not [line for line in three if line.startswith("--seeds")]
