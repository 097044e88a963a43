"""Mistakes in a custom training loop are reported at the first batch that has them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from uiat import UIAT, Batch, Clock, DataSpec, UserError
from uiat.attacks import PGD
from uiat.attacks.ascent import ascend
from uiat.balls import Linf
from uiat.methods import METHODS, SAT, Natural
from uiat.objectives.terms import Weighted, ce_adversarial
from uiat.targets import InstanceInverse, UniversalInverse

DATA = DataSpec(num_classes=3, num_samples=20, shape=(1, 8, 8))
CLOCK = Clock(1, 0, 4)
ANY_PGD: Any = PGD
WITH_NORM: tuple[Any, ...] = (PGD, InstanceInverse, UniversalInverse)
X, Y, INDEX = torch.rand(6, 1, 8, 8), torch.arange(6) % 3, torch.arange(6)


def network(classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, classes))


class Pair(nn.Module):
    """Returns its logits twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(x), self.inner(x)


@pytest.mark.parametrize("name", ["natural", "sat", "trades", "uiat", "n-fgsm"])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (network(5), "5 logits.* 3 classes"),
        (network(2), "2 logits.* 3 classes"),
        (Pair(), "tuple of 2"),
        (nn.Sequential(network(), nn.Flatten(0)), r"\(18,\) for 6"),
    ],
    ids=["more", "fewer", "tuple", "flat"],
)
def test_logits_are_checked_in_the_first_batch(name: str, model: nn.Module, message: str) -> None:
    with pytest.raises(UserError, match=message):
        METHODS[name].build(DATA)(model, Batch(X, Y, INDEX), CLOCK)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch(X, Y, INDEX[:4]), r"indices .*\(4,\) for 6"),
        (Batch(X, Y, INDEX.float()), "sample indices are torch.float32"),
        (Batch(X, Y, INDEX.bool()), "sample indices are torch.bool"),
        (Batch(X, Y, INDEX + 15), "index .*0 … 19"),
        (Batch(X, Y.float(), INDEX), "labels are torch.float32"),
        (Batch(X, Y[:, None], INDEX), r"labels .*\(6, 1\)"),
    ],
)
def test_a_batch_that_does_not_fit(batch: Batch, message: str) -> None:
    with pytest.raises(UserError, match=message):
        UIAT().build(DATA)(network(), batch, CLOCK)


@pytest.mark.parametrize("x", [X * 255, X - 0.5, torch.full_like(X, torch.nan)], ids=["255", "normalised", "nan"])
def test_inputs_that_leave_the_range_later(x: Tensor) -> None:
    method, model = SAT().build(DATA), network()
    method(model, Batch(X, Y), CLOCK)
    with pytest.raises(UserError, match=r"pixels .*\[0, 1\]"):
        method(model, Batch(x, Y), Clock(1, 7, 4))


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ((0, 0, 4), "epoch 0 of 4"),
        ((5, 0, 4), "epoch 5 of 4"),
        ((1, 0, 0), "epoch 1 of 0"),
        ((1, -1, 4), "step -1"),
    ],
)
def test_a_clock_that_shows_no_time(time: tuple[int, int, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Clock(*time)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: PGD(eps=-1), r"PGD\.eps .*-1.* 0"),
        (lambda: PGD(eps=8), r"PGD\.eps .*8.* 8/255"),
        *((lambda cls=cls: cls(norm="max"), "'max'.*l2, linf") for cls in WITH_NORM),
        (lambda: ANY_PGD(norm="L2"), "'L2'.*'l2'"),
        (lambda: ANY_PGD(loss="hinge"), "'hinge'.*ce, kl, margin"),
        (lambda: ANY_PGD(start="zero"), "'zero'.*gaussian, none, uniform"),
        (lambda: Weighted("mine", ce_adversarial, float("nan")), r"Weighted\.weight .*nan"),
        (lambda: Linf(X, -1), "ε .*-1.* radius"),
        (lambda: ascend(lambda at: at, X, Linf(X, 0.1), step=0.1, steps=-1), "-1 steps"),
        (lambda: ascend(lambda at: at, X, Linf(X, 0.1), step=float("nan"), steps=1), "steps of size nan"),
    ],
)
def test_a_number_that_no_method_works_with(use: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        use()


def test_an_l2_radius_may_be_larger_than_1() -> None:
    method = SAT(PGD(eps=2.0, step=0.5, norm="l2")).build(DATA)
    assert method(network(), Batch(X, Y), CLOCK).total.isfinite()
    assert Natural().build(DATA)(network(), Batch(X, Y), CLOCK).total.isfinite()


def test_a_batch_without_samples_is_named() -> None:
    with pytest.raises(UserError, match=r"batch .*samples"):
        SAT().build(DATA)(network(), Batch(X[:0], Y[:0], INDEX[:0]), CLOCK)
