"""k processes with shares of a batch are one process with the whole of it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ranks import train
from uiat.methods import METHODS

NAMES = [*METHODS, "sat+", "trades+", "uiat+", "uiat-oneoff+", "uiat*", "uiat-oneoff*"]
"""Every method, some with weight perturbation and averaged weights (+), some with generated images (*)."""
FEW = ["sat", "hat", "iat", "gradalign-uiat", "uiat+", "uiat-oneoff*"]
"""One of each kind: with and without a target of its own, a helper, a table of p, AWP, generated images."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(1, tmp_path_factory.mktemp("alone") / "out", NAMES)


def check(found: dict[str, Any], alone: dict[str, Any]) -> None:
    """Compare what several processes have found with what one has."""
    for name, ours in found.items():
        theirs = alone[name]
        assert ours["tensors"].keys() == theirs["tensors"].keys()
        for key, value in theirs["tensors"].items():
            torch.testing.assert_close(ours["tensors"][key], value, rtol=0, atol=1e-5, msg=f"{name}: {key}")
        assert ours["losses"] == pytest.approx(theirs["losses"], abs=1e-5), name
        assert ours["robust"] == theirs["robust"], name


def check_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Compare the tensors of two processes of one run, to the last digit."""
    for name, found in first.items():
        for key, value in found["tensors"].items():
            assert torch.equal(second[name]["tensors"][key], value), f"{name}: {key} differs between processes"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every method on two processes: what each of them has in the end."""
    out = tmp_path_factory.mktemp("two") / "out"
    return [train(2, out, NAMES), torch.load(f"{out}.1", weights_only=True)]


def test_two_processes_equal_one(two: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    """Augmentation, random starts, z, the table of p, weights, reported losses: every method, in double precision."""
    first, second = two
    check(first, alone)
    assert {name: first[name]["passes"] for name in NAMES} == {name: alone[name]["passes"] for name in NAMES}
    check_same(first, second)


@pytest.mark.parametrize(
    ("world", "micro_batch", "names"),
    [pytest.param(4, 0, NAMES, marks=pytest.mark.slow), pytest.param(2, 3, NAMES, marks=pytest.mark.slow), (2, 3, FEW)],
    ids=["4 processes", "micro-batches", "micro-batches, few methods"],
)
def test_processes_equal_one(
    world: int, micro_batch: int, names: list[str], alone: dict[str, Any], tmp_path: Path
) -> None:
    found = train(world, tmp_path / "out", names, micro_batch)
    check(found, alone)
    check_same(found, torch.load(tmp_path / "out.1", weights_only=True))


def test_no_sample_is_lost_or_doubled(two: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    first, second = (found["sat"]["seen"] for found in two)
    whole = alone["sat"]["seen"]
    assert [mine + theirs for mine, theirs in zip(first, second, strict=True)] == whole
    assert sorted(index for batch in whole[:3] for index in batch) == list(range(23))
