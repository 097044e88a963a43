"""k processes with shares of a batch are one process with the whole of it.

Each makes a few steps of every method on a network without batch statistics. A name that ends in `+` is the method with
weight perturbation and averaged weights, one with `*` has generated images.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.processes import fork_ranks
from uiat.attacks import PGD
from uiat.averaging import AveragedWeights
from uiat.config import AWP
from uiat.data.images import Images
from uiat.data.loader import Loader
from uiat.distributed import process_group, rank, world
from uiat.engine.pass_counter import PassCounter
from uiat.engine.state import State
from uiat.engine.step import make_optimizer, train_step
from uiat.evaluation.suite import accuracy
from uiat.methods import METHODS, Method
from uiat.types import Clock, DataSpec

DATA = DataSpec(num_classes=4, num_samples=23, shape=(1, 8, 8))
EPOCHS, BATCH = 4, 10
"""Batches of 10, 10 and 3: three is less than a share for each of four processes."""


class Net(nn.Module):
    """Convolutions without BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.Tanh(), nn.Conv2d(6, 6, 3, stride=2), nn.Tanh())
        self.last = nn.Linear(6, DATA.num_classes)
        self.penultimate_layer = "last"  # a search for the features would be counted among the passes

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x).mean(dim=(2, 3)))  # type: ignore[no-any-return]


def images(count: int = DATA.num_samples, seed: int = 1) -> Images:
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=g)
    return Images(x, torch.arange(count) % 4, tuple("abcd"))


def build(name: str, more: int) -> tuple[nn.Module, Method]:
    torch.manual_seed(3)
    model, helper = Net().double(), Net().double()
    data = replace(DATA, num_samples=DATA.num_samples + more)
    return model, METHODS[name].build(data, seed=5, helper=helper).double()


def run(name: str, micro_batch: int | None) -> dict[str, Any]:
    boosted = name.endswith("+")
    more = images(31, seed=2) if name.endswith("*") else None
    model, method = build(name.rstrip("+*"), 0 if more is None else len(more))
    average = AveragedWeights(model) if boosted else None
    state = State(model, method, make_optimizer(model, 0.9, 5e-4), PassCounter(model), average)
    loader = Loader(images(), BATCH, seed=5, crop=1, flip=True, generated=more)
    losses, seen = [], []
    for epoch in range(1, EPOCHS + 1):
        for step, batch in loader.epoch(epoch):
            assert batch.index is not None
            seen.append(batch.index[: batch.count].tolist())
            double = type(batch)(**{**vars(batch), "x": batch.x.double()})
            train_step(
                state, double, Clock(epoch, step, EPOCHS), lr=0.1, micro_batch=micro_batch, awp=AWP(boosted, 0.05)
            )
        losses.append(state.meter.means()["loss"])
    tensors = {name: tensor.clone() for name, tensor in {**model.state_dict(), **method.state_dict()}.items()}
    if average is not None:
        tensors |= {f"average.{name}": tensor for name, tensor in average.weights.items()}
    passes = state.passes.everywhere()
    found = accuracy(model.float(), images(), PGD(eps=0.02, steps=2)).accuracy
    state.parallel.close()
    return {"tensors": tensors, "losses": losses, "seen": seen, "passes": passes, "robust": found}


def main(out: str, names: list[str], micro_batch: int | None) -> None:
    with process_group(torch.device("cpu")):
        results = {name: run(name, micro_batch) for name in names}
        results["world"] = {"size": world()}
        torch.save(results, f"{out}.{rank()}")


def train(world: int, out: Path, names: list[str], micro_batch: int = 0) -> dict[str, Any]:
    """Train on `world` processes and return what the main process saved."""
    for code, said in fork_ranks(out.parent, world, main, str(out), names, micro_batch or None):
        assert code == 0, said
    result: dict[str, Any] = torch.load(f"{out}.0", weights_only=True)
    assert result.pop("world") == {"size": world}
    return result


NAMES = [*METHODS, "sat+", "trades+", "uiat+", "uiat-oneoff+", "uiat*", "uiat-oneoff*"]
FEW = ["sat", "hat", "iat", "gradalign-uiat", "uiat+", "uiat-oneoff*"]
"""One of each kind: with and without a target of its own, a helper, a table of p, AWP, generated images."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(1, tmp_path_factory.mktemp("alone") / "out", NAMES)


def check(found: dict[str, Any], alone: dict[str, Any]) -> None:
    """Compare the result of several processes with that of one."""
    for name, ours in found.items():
        theirs = alone[name]
        assert ours["tensors"].keys() == theirs["tensors"].keys()
        for key, value in theirs["tensors"].items():
            torch.testing.assert_close(ours["tensors"][key], value, rtol=0, atol=1e-5, msg=f"{name}: {key}")
        assert ours["losses"] == pytest.approx(theirs["losses"], abs=1e-5), name
        assert ours["robust"] == theirs["robust"], name


def check_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Compare the tensors of two processes of one run bit by bit."""
    for name, found in first.items():
        for key, value in found["tensors"].items():
            assert torch.equal(second[name]["tensors"][key], value), f"{name}: {key} differs between processes"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The final state of each of two processes, for every method."""
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
