"""A network that fails at chosen steps of a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.kills import starve
from tests.support.moments import STEP, at_call
from uiat.cli import main
from uiat.distributed import rank
from uiat.engine import loop
from uiat.engine.guards import Fault
from uiat.engine.state import State
from uiat.models import MODELS
from uiat.types import Batch, Clock, DataSpec

ROW = 3
"""The row of the batch that a `sample` or an `overflow` is about."""


@dataclass
class Script:
    """The failure, and the steps at which it happens, from 1."""

    kind: str = ""
    places: tuple[tuple[int, int], ...] = ()
    rank: int = 0
    now: tuple[int, int] = (0, 0)

    def plays(self, kind: str) -> bool:
        return self.kind == kind and self.now in self.places and self.rank == rank()


SCRIPT = Script()
LARGE = {"sample": torch.inf, "overflow": 3e38}
"""A sample that makes the loss NaN, and one that BatchNorm hides in training: only its running variance overflows."""


class Spoilt(torch.autograd.Function):
    """Finite in the forward pass, infinite in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.full_like(grad, torch.inf)


class Net(nn.Module):
    """A convolution, BatchNorm and a linear layer."""

    def __init__(self, data: DataSpec) -> None:
        super().__init__()
        self.conv = nn.Conv2d(data.shape[0], 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.last = nn.Linear(6, data.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        updates = self.training and torch.is_grad_enabled() and self.last.weight.requires_grad
        for kind, factor in LARGE.items():  # in all forward passes
            if SCRIPT.plays(kind):
                x = x * torch.ones_like(x[:, :1, :1, :1]).index_fill(0, torch.tensor(ROW), factor)
        features = self.bn(self.conv(x)).relu().mean(dim=(2, 3))
        if updates and SCRIPT.plays("gradient"):
            features = Spoilt.apply(features)
        logits: Tensor = self.last(features)
        return logits * torch.nan if updates and SCRIPT.plays("logits") else logits


@dataclass(frozen=True)
class Faulty:
    """The configuration of the network."""

    def build(self, data: DataSpec) -> nn.Module:
        return Net(data)


@contextmanager
def script(kind: str = "", *places: tuple[int, int], on: int = 0) -> Iterator[pytest.MonkeyPatch]:
    """Within it, `Faulty` is a known model and fails in this way, at these (epoch, step), on this rank."""
    train_step, respond = vars(loop)["train_step"], vars(loop)["respond"]

    def told(state: State, batch: Batch, clock: Clock, **settings: Any) -> Fault | None:
        SCRIPT.now = (clock.epoch, clock.step + 1)
        fault: Fault | None = train_step(state, batch, clock, **settings)
        if fault is None:
            SCRIPT.now = (0, 0)
        return fault

    def responded(*args: Any, **settings: Any) -> None:  # compares the samples, so the step has finished
        try:
            respond(*args, **settings)
        finally:
            SCRIPT.now = (0, 0)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"kind": kind, "places": places, "rank": on, "now": (0, 0)}.items():
            patch.setattr(SCRIPT, name, value)
        patch.setitem(MODELS, "faulty", Faulty())
        patch.setattr(loop, "train_step", told)
        patch.setattr(loop, "respond", responded)
        yield patch


def run_process(
    kind: str, on: int, places: list[tuple[int, int]], out: Path, args: list[str], *, starved: bool = False
) -> int:
    """Run a command as one process of a run that fails on this rank, and save its last weights in OUT.RANK.

    With `starved`, gloo's threads have idle priority from the second step on.
    """
    last: list[State] = []
    with script(kind, *places, on=on) as patch:
        step = vars(loop)["train_step"]

        def kept(state: State, *rest: Any, **settings: Any) -> Any:
            last[:] = [state]
            return step(state, *rest, **settings)

        patch.setattr(loop, "train_step", kept)
        with at_call(STEP, 2, starve, before=True) if starved else nullcontext():
            code = main(args)
    for state in last:
        torch.save({**state.model.state_dict(), **state.method.state_dict()}, f"{out}.{os.environ['RANK']}")
    return code
