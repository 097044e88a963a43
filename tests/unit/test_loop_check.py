"""Warnings about likely mistakes in a custom loop: given once, and not where the use is intended."""

import copy
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from uiat import SAT, UIAT, Batch, Clock, DataSpec
from uiat.attacks import PGD
from uiat.methods import Method
from uiat.methods.loop_check import SAME_CLOCKS
from uiat.models.fast import speed_up

DATA = DataSpec(num_classes=3, num_samples=12, shape=(1, 8, 8))
X = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
BATCH = Batch(X, torch.arange(12) % 3, torch.arange(12))
STANDS = "the clock has shown epoch 1, step 0 in 20 calls in a row"
EVAL = "the model is in eval mode while its loss is computed"


def network(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), *layers, nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def sat() -> Method:
    return SAT(PGD(steps=1)).build(DATA)


@pytest.fixture(autouse=True)
def every_warning() -> Iterator[None]:
    """Disable Python's own filter of repeated warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield


def texts(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in caught]


def test_a_clock_that_does_not_advance_is_reported_once_where_the_method_is_called() -> None:
    method, model = sat(), network()
    with warnings.catch_warnings(record=True) as caught:
        for _ in range(SAME_CLOCKS - 1):
            method(model, BATCH, Clock(1, 0, 4))
        assert caught == []
        for epoch in (1, 2):
            for _ in range(2 * SAME_CLOCKS):
                method(model, BATCH, Clock(epoch, 0, 4))
    (warning,) = caught
    assert str(warning.message).startswith(STANDS)
    assert warning.category is UserWarning
    assert warning.filename == __file__


def test_a_clock_that_advances_is_not_reported() -> None:
    method, model = sat(), network()
    with warnings.catch_warnings(record=True) as caught:
        for epoch in (1, 2):
            for step in range(2 * SAME_CLOCKS):
                method(model, BATCH, Clock(epoch, step, 4))
    assert caught == []


def test_micro_batches_share_their_clock() -> None:
    """In the three separate calls, any number of times, and in whole calls for the parts of one batch."""
    parts = BATCH.split(1)
    assert len(parts) == 12
    with warnings.catch_warnings(record=True) as caught:
        method, model = UIAT(attack=PGD(steps=1)).build(DATA), network()
        for _ in range(3):
            views = [method.craft(model, part, Clock(1, 0, 4)) for part in parts]
            method.prepare(model, views, Clock(1, 0, 4))
            for view in views:
                method.loss(view, Clock(1, 0, 4))
        for _ in range(SAME_CLOCKS - 1):
            for part in parts:
                method(model, part, Clock(1, 0, 4))
    assert caught == []


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4), nn.Dropout(0.1)], ids=["batchnorm", "dropout"])
@pytest.mark.parametrize("fast", [False, True])
def test_a_model_left_in_eval_mode_is_named_once(layer: nn.Module, fast: bool) -> None:
    model = network(copy.deepcopy(layer))
    method, given = sat(), speed_up(model, X[:2]) if fast else model
    with warnings.catch_warnings(record=True) as caught:
        method(given, BATCH, Clock(1, 0, 4))
        assert caught == []
        model.eval()
        for step in range(1, 4):
            method(given, BATCH, Clock(1, step, 4))
    (warning,) = caught
    assert str(warning.message).startswith(EVAL)
    assert warning.filename == __file__


def frozen_norm() -> nn.Module:
    model = network(nn.BatchNorm2d(4))
    model.get_submodule("1").eval()
    return model


def stale_flag() -> nn.Module:
    """The outer module is in eval mode, its layers train, as with an accelerated or compiled copy of the model."""
    model = network(nn.BatchNorm2d(4))
    outer = nn.Sequential(model).eval()
    model.train()
    return outer


@pytest.mark.parametrize("make", [frozen_norm, stale_flag, lambda: network().eval()])
def test_a_mode_that_is_meant_is_not_named(make: object) -> None:
    assert callable(make)
    with warnings.catch_warnings(record=True) as caught:
        sat()(make(), BATCH, Clock(1, 0, 4))
    assert caught == []


def test_a_loss_without_gradients_is_not_reported() -> None:
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        sat()(network(nn.BatchNorm2d(4)).eval(), BATCH, Clock(1, 0, 4))
    assert caught == []


def test_it_changes_no_number_and_no_state() -> None:
    """The call with its checks, and the three calls without them."""

    def train(whole: bool) -> list[Tensor]:
        method, model = UIAT(attack=PGD(steps=2)).build(DATA), network(nn.BatchNorm2d(4))
        keys, found = list(method.state_dict()), []
        for _ in range(SAME_CLOCKS + 1):
            if whole:
                loss = method(model, BATCH, Clock(1, 0, 1))
            else:
                view = method.craft(model, BATCH, Clock(1, 0, 1))
                method.prepare(model, [view], Clock(1, 0, 1))
                loss = method.loss(view, Clock(1, 0, 1))
            loss.total.backward()
            found.append(loss.total.detach())
        assert list(method.state_dict()) == keys
        return [*found, *method.state_dict().values(), *model.state_dict().values()]

    with warnings.catch_warnings(record=True) as caught:
        assert all(map(torch.equal, train(whole=True), train(whole=False)))
    assert [text[: len(STANDS)] for text in texts(caught)] == [STANDS]
