"""The fast path: attacks through a folded copy give what attacks on the network itself give."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.crafting import crafting
from uiat.methods import METHODS
from uiat.models import PreActResNet, ResNet, WideResNet, penultimate
from uiat.models.compiled import Compiled
from uiat.models.fast import speed_up, to_channels_last
from uiat.models.folding import AcceleratedCopy
from uiat.types import Batch, Clock, DataSpec

SPEC = DataSpec(num_classes=4, num_samples=24, shape=(3, 8, 8))
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet": lambda: ResNet(blocks=(1, 1), width=4).build(SPEC),
    "resnet normalised": lambda: ResNet(blocks=(1, 1), width=4, normalize=True).build(SPEC),
    "features of a stage": lambda: ResNet(blocks=(1, 1), width=4, features="layer2").build(SPEC),
    "features of the head": lambda: ResNet(blocks=(1, 1), width=4, features="linear").build(SPEC),
    "preact": lambda: PreActResNet(blocks=(1, 1), width=4, activation="silu").build(SPEC),
    "wrn": lambda: WideResNet(depth=10, widen=1).build(SPEC),
    "custom": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 4)
    ),
}


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = NETWORKS[name]().double().train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.rand(8, 3, 8, 8, dtype=torch.double) * 2)  # running statistics that do something
    return model


def batch(seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(12, 3, 8, 8, generator=g, dtype=torch.double)
    return Batch(x, torch.randint(0, 4, (12,), generator=g), torch.randperm(24, generator=g)[:12])


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_and_features_are_the_networks(name: str) -> None:
    model, x = network(name), batch().x
    fast = speed_up(model, x)
    with crafting(fast) as found, torch.no_grad():
        assert isinstance(found, AcceleratedCopy)
        close(found(x), model(x))
        for ours, theirs in zip(penultimate(found, x), penultimate(model, x), strict=True):
            close(ours, theirs)
    assert all(module.training for module in model.modules())
    with crafting(fast, "train") as found, torch.no_grad():
        assert found is fast, "batch statistics cannot be folded"
        close(found(x), model(x))


@pytest.mark.parametrize("method", [name for name in METHODS if name != "hat"])
def test_every_method_computes_the_same(method: str) -> None:
    plain = network("resnet")
    quick = copy.deepcopy(plain)
    fast = speed_up(quick, batch().x)
    assert fast.folds > 0
    losses: list[list[Tensor]] = []
    states: list[dict[str, Any]] = []
    for model, given in ((plain, plain), (quick, fast)):
        built = METHODS[method].build(SPEC, seed=3).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses.append([])
        for epoch in (7, 8, 9, 10):
            loss = built(given, batch(epoch % 2), Clock(epoch, 0, 10)).total
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(loss.detach())
        states.append({**model.state_dict(), **built.state_dict()})
    close(torch.stack(losses[0]), torch.stack(losses[1]))
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-7, atol=1e-9, msg=name)


def test_the_copy_follows_however_the_weights_change() -> None:
    model, x = network("resnet"), batch().x
    fast = speed_up(model, x)
    for parameter in model.parameters():
        parameter.data = parameter.data * 1.5  # leaves no mark that autograd could tell
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.data.add_(0.1)
    with crafting(fast) as found, torch.no_grad():
        assert isinstance(found, AcceleratedCopy)
        close(found(x), model(x))


class Branching(nn.Module):
    """A forward that depends on what it computes: nothing that a trace can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(144, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.conv(x))
        return self.linear((out if out.sum() > 0 else -out).flatten(1))  # type: ignore[no-any-return]


class Counting(nn.Module):
    """A forward that changes with the number of its calls: a trace is another function."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(144, 4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(self.norm(self.conv(x * self.calls)).flatten(1))  # type: ignore[no-any-return]


def hooked() -> nn.Module:
    model = NETWORKS["custom"]()
    model.register_forward_hook(lambda module, args, output: None)
    return model


@pytest.mark.parametrize("make", [Branching, Counting, hooked, lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 4))])
def test_what_cannot_be_folded_is_used_as_it_is(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = make().double().train()
    fast = speed_up(model, batch().x)
    assert fast.folds == 0
    with crafting(fast) as found:
        assert found is fast
    METHODS["uiat"].build(SPEC).double()(fast, batch(), Clock(1, 0, 2)).total.backward()


def test_a_deep_copy_has_only_the_model() -> None:
    fast = speed_up(network("resnet"), batch().x)
    other = copy.deepcopy(fast)
    assert other.folds == 0
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
        assert not other.eval()(batch().x).any()
        assert fast.crafting_network()(batch().x).any()


def test_a_model_can_be_sped_up_again() -> None:
    model = network("resnet")
    fast = speed_up(speed_up(model, batch().x), batch().x)
    assert fast.model is model
    assert fast.folds > 0


def test_the_model_is_the_only_part_with_weights() -> None:
    model = network("resnet")
    fast = speed_up(model, batch().x)
    assert list(fast.state_dict()) == [f"model.{name}" for name in model.state_dict()]
    assert list(fast.parameters()) == list(model.parameters())


class Fails:
    """Stands for a machine without a compiler."""

    def __call__(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        def broken(*_: Any) -> None:
            raise RuntimeError("no C++ compiler\nfound")

        return broken


def test_without_a_compiler_all_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch, "compile", Fails())
    model, plain = network("resnet"), network("resnet")
    fast = speed_up(model, batch().x, compile=True)
    assert fast.folds > 0
    losses = [METHODS["uiat"].build(SPEC).double()(m, batch(), Clock(1, 0, 2)).total for m in (fast, plain)]
    close(losses[0].detach(), losses[1].detach())
    said = capsys.readouterr().err
    assert said.count("runs without torch.compile, which failed (no C++ compiler)") == 2
    assert "Traceback" not in said


@pytest.mark.parametrize("method", ["uiat", "n-fgsm-uiat"])
def test_compiled_forwards_compute_the_same(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a compiler that only rearranges graphs; the real one is tried among the slow tests."""
    original: Any = torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward: original(forward, backend="aot_eager"))
    plain = network("resnet")
    quick = copy.deepcopy(plain)
    fast = speed_up(quick, batch().x, compile=True)
    assert fast.folds > 0
    assert isinstance(fast.networks[-1], Compiled)
    for model in (plain, fast):
        METHODS[method].build(SPEC, seed=1).double()(model, batch(), Clock(8, 0, 10)).total.backward()
    for ours, theirs in zip(quick.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-10)


def test_training_in_channels_last_memory_gives_the_right_gradients() -> None:
    """Few channels, images that are not square: where a strided 1×1 convolution of oneDNN writes beyond its memory."""
    for make in (
        ResNet(blocks=(1, 1), width=4),
        PreActResNet(blocks=(1, 1), width=4),
        WideResNet(depth=10, widen=1),
    ):
        torch.manual_seed(0)
        plain = make.build(DataSpec(3, 8, (3, 64, 48)))
        last = to_channels_last(copy.deepcopy(plain))
        assert any(
            p.is_contiguous(memory_format=torch.channels_last) and p.ndim == 4 and p.shape[2] > 1
            for p in last.parameters()
        )
        x, y = torch.rand(8, 3, 64, 48), torch.arange(8) % 3
        for model in (plain, last):
            for _ in range(5):
                model.zero_grad()
                F.cross_entropy(model(x), y).backward()
        for ours, theirs in zip(last.parameters(), plain.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            assert (ours.grad - theirs.grad).norm() <= 1e-2 * theirs.grad.norm() + 1e-4


def test_a_strided_pointwise_convolution_keeps_its_memory() -> None:
    first = nn.Conv2d(3, 8, 3)
    to_channels_last(nn.Sequential(first, nn.Conv2d(8, 8, 1, stride=2), nn.Flatten(), nn.Linear(72, 4)))
    assert first.weight.is_contiguous()
