"""What one process of a run does: a few steps of every method on a network without batch statistics; saves the end.

A name that ends in `+` is the method with weight perturbation and averaged weights, one with `*` has generated images.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from uiat.attacks import PGD
from uiat.config import AWP, Averaging
from uiat.data.images import Images
from uiat.data.loader import Loader
from uiat.distributed import process_group, rank, world
from uiat.engine.averaging import Average
from uiat.engine.pass_counter import PassCounter
from uiat.engine.state import State
from uiat.engine.step import make_optimizer, train_step
from uiat.evaluation.accuracy import accuracy
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
        self.penultimate_layer = "last"  # a search for it would be counted among the passes

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
    average = Average(model, Averaging(enabled=True)) if boosted else None
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
    torch.set_num_threads(1)
    with process_group(torch.device("cpu")):
        results = {name: run(name, micro_batch) for name in names}
        results["world"] = {"size": world()}
        torch.save(results, f"{out}.{rank()}")
