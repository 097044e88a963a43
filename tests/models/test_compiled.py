"""torch.compile: fallback after failures, attacks where nothing folds, and no reference cycles."""

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models.test_folding import images, settled
from tests.support.networks import LeNet, NormedLeNet
from uiat.attacks import PGD
from uiat.crafting import crafting
from uiat.engine.pass_counter import PassCounter
from uiat.methods import METHODS
from uiat.models.fast import AcceleratedModel, Compiled, speed_up
from uiat.models.folding import AcceleratedCopy
from uiat.models.probe import Streams
from uiat.types import Batch, Clock, DataSpec

SPEC = DataSpec(num_classes=10, num_samples=24, shape=(1, 8, 8))
SAID = "runs without torch.compile, which failed"


class Explodes(torch.autograd.Function):
    """Simulates a backward pass that cannot be compiled."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise RuntimeError("the backward cannot be compiled")


def nowhere(forward: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Simulates a machine without a compiler."""

    def run(x: Tensor) -> Any:
        raise RuntimeError("no C++ compiler\nfound")

    return run


def on_other_shapes(forward: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """A compiler that supports only batches of 12."""

    def run(x: Tensor) -> Any:
        if len(x) != 12:
            raise RuntimeError(f"no kernel for {len(x)} samples")
        return forward(x)

    return run


def in_backward(forward: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def run(x: Tensor) -> Any:
        found = forward(x)
        return tuple(map(Explodes.apply, found)) if isinstance(found, tuple) else Explodes.apply(found)

    return run


def when_frozen(forward: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Simulates a compiler that fails after the first kind of call has worked."""

    def run(x: Tensor) -> Any:
        if x.requires_grad:
            raise RuntimeError("no gradient with respect to x")
        return forward(x)

    return run


def batch(samples: int) -> Batch:
    g = torch.Generator().manual_seed(samples)
    return Batch(torch.rand(samples, 1, 8, 8, generator=g), torch.arange(samples) % 10, torch.arange(samples))


def noise(samples: int = 2) -> Tensor:
    return batch(samples).x


def losses(model: AcceleratedModel) -> list[Tensor]:
    """Take three steps, the last with a smaller batch."""
    method, optimizer = METHODS["uiat"].build(SPEC), torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for samples in (12, 12, 5):
        loss = method(model, batch(samples), Clock(1, 0, 2)).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    return [*found, *(value for value in model.state_dict().values() if value.is_floating_point())]


@pytest.mark.parametrize(
    ("make", "fails"),
    [
        (NormedLeNet, nowhere),
        (LeNet, nowhere),
        (NormedLeNet, on_other_shapes),
        (NormedLeNet, in_backward),
        (LeNet, when_frozen),
    ],
)
def test_whenever_compiling_fails_training_continues(
    make: type[nn.Module], fails: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "compile", fails)
    plain = settled(make, SPEC.shape)
    quick = copy.deepcopy(plain)
    fast = speed_up(quick, noise(), compile=True)
    uncompiled = speed_up(plain, noise())  # so that the two differ only by the compiler
    for ours, theirs in zip(losses(fast), losses(uncompiled), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    said = capsys.readouterr().err.splitlines()
    assert 1 <= len(said) <= 3
    assert all(SAID in line for line in said)
    assert len(set(said)) == len(said), "each part says so once"


def test_the_trial_of_a_new_kind_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(forward: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        def run(x: Tensor) -> Any:
            calls.append(len(x))
            return forward(x)

        return run

    monkeypatch.setattr(torch, "compile", counted)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(0.5), nn.Linear(64, 10))
    plain, compiled = copy.deepcopy(model), Compiled(model, "it")
    streams = Streams()
    ours = compiled(noise(12))
    after = Streams()
    streams.restore()
    theirs = plain(noise(12))
    assert torch.equal(ours, theirs)
    assert not after.moved()
    assert calls == [12, 12], "the first of its kind is tried"
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(model.state_dict()["1.running_mean"], plain.state_dict()["1.running_mean"])
    compiled(noise(12))
    with torch.no_grad():
        compiled(noise(12))
    assert calls == [12] * 4, "one that was seen, or has no backward, is not"
    compiled(noise(5))
    assert calls == [12] * 4 + [5] * 2


@pytest.fixture
def rearranging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that only rearranges graphs; slow tests use the real one."""
    original: Any = torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward: original(forward, backend="aot_eager"))


@pytest.mark.usefixtures("rearranging")
@pytest.mark.parametrize("method", ["uiat", "n-fgsm-uiat"])
def test_compiled_forwards_compute_the_same(method: str) -> None:
    plain, x = settled(NormedLeNet, SPEC.shape, torch.double), images(SPEC.shape, torch.double)
    quick = copy.deepcopy(plain)
    fast = speed_up(quick, x, compile=True)
    assert fast.folds > 0
    assert isinstance(fast.networks[-1], Compiled)
    for model in (plain, fast):
        built = METHODS[method].build(SPEC, seed=1).double()
        built(model, Batch(x, torch.arange(4), torch.arange(4)), Clock(8, 0, 10)).total.backward()
    for ours, theirs in zip(quick.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-10)


@pytest.mark.usefixtures("rearranging")
def test_attacks_are_compiled_where_nothing_folds(capsys: pytest.CaptureFixture[str]) -> None:
    plain = settled(LeNet, SPEC.shape)
    model = copy.deepcopy(plain)
    assert speed_up(plain, noise()).folds == 0
    fast = speed_up(model, noise(), compile=True)
    assert fast.folds == 0
    counter, reference = PassCounter(fast), PassCounter(plain)
    y = torch.arange(12) % 10
    with crafting(fast) as ours, crafting(plain) as theirs:
        assert isinstance(ours, AcceleratedCopy)
        assert isinstance(ours.run, Compiled)
        found, expected = (PGD(steps=3)(net, batch(12).x, y) for net in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert counter.counts == reference.counts
    assert counter.counts["input_backward"] == 36
    for net in (fast, plain):
        METHODS["trades"].build(SPEC)(net, batch(12), Clock(1, 0, 2)).total.backward()
    for weight, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, expected.grad, rtol=1e-4, atol=1e-5)
    assert counter.counts == reference.counts
    assert counter.counts["weight_backward"] == 24
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("rearranging")
def test_a_copy_that_is_dropped_leaves_a_compiled_network() -> None:
    model = settled(NormedLeNet, SPEC.shape)
    fast = speed_up(model, noise(), compile=True)
    counter = PassCounter(fast)
    assert fast.folds == 2
    model.first = nn.Conv2d(1, 4, 3, dilation=1)
    assert not fast.folded_copy_is_valid(noise())
    before = counter.counts["forward"]
    with crafting(fast) as network, torch.no_grad():
        assert isinstance(network, AcceleratedCopy)
        assert isinstance(network.run, Compiled)
        torch.testing.assert_close(network(noise()), model(noise()))
    assert counter.counts["forward"] == before + 4, "two samples through each"


@pytest.mark.usefixtures("rearranging")
@pytest.mark.parametrize("make", [NormedLeNet, LeNet])
def test_a_compiled_network_that_is_gone_takes_all_along(make: type[nn.Module]) -> None:
    model = settled(make, SPEC.shape)
    fast = speed_up(model, noise(), compile=True)
    METHODS["sat"].build(SPEC)(fast, batch(12), Clock(1, 0, 2)).total.backward()
    gone = [weakref.ref(part) for part in (model, *fast.networks, model.linear)]
    del model, fast
    gc.collect()
    assert [part() for part in gone] == [None] * len(gone)
