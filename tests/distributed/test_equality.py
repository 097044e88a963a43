"""k processes with shares of a batch are one process with the whole of it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ranks import train
from uiat.methods import METHODS

NAMES = [*METHODS, "sat+", "trades+", "uiat+", "uiat-oneoff+", "uiat*", "uiat-oneoff*"]
"""Every method, some with weight perturbation and averaged weights (+), some with generated images (*)."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(1, tmp_path_factory.mktemp("alone") / "out", NAMES)


def check(found: dict[str, Any], alone: dict[str, Any]) -> None:
    for name in NAMES:
        ours, theirs = found[name], alone[name]
        assert ours["tensors"].keys() == theirs["tensors"].keys()
        for key, value in theirs["tensors"].items():
            torch.testing.assert_close(ours["tensors"][key], value, rtol=0, atol=1e-5, msg=f"{name}: {key}")
        assert ours["losses"] == pytest.approx(theirs["losses"], abs=1e-5), name
        assert ours["robust"] == theirs["robust"], name


@pytest.mark.parametrize(("world", "micro_batch"), [(2, 0), pytest.param(4, 0, marks=pytest.mark.slow), (2, 3)])
def test_processes_equal_one(world: int, micro_batch: int, alone: dict[str, Any], tmp_path: Path) -> None:
    """Augmentation, random starts, z, the table of p, weights, reported losses: every method, in double precision."""
    found = train(world, tmp_path / "out", NAMES, micro_batch)
    check(found, alone)
    if world == 2 and not micro_batch:
        assert {name: found[name]["passes"] for name in NAMES} == {name: alone[name]["passes"] for name in NAMES}
    other = torch.load(tmp_path / "out.1", weights_only=True)
    for name in NAMES:
        for key, value in found[name]["tensors"].items():
            assert torch.equal(other[name]["tensors"][key], value), f"{name}: {key} differs between processes"


def test_no_sample_is_lost_or_doubled(alone: dict[str, Any], tmp_path: Path) -> None:
    found = train(2, tmp_path / "out", ["sat"])["sat"]["seen"]
    other = torch.load(tmp_path / "out.1", weights_only=True)["sat"]["seen"]
    whole = alone["sat"]["seen"]
    assert [mine + theirs for mine, theirs in zip(found, other, strict=True)] == whole
    assert sorted(index for batch in whole[:3] for index in batch) == list(range(23))
