"""BatchNorm folded into convolutions: the same function, and nothing of the original is touched."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models.helpers import data
from uiat.models import PreActResNet, ResNet, WideResNet
from uiat.models.folding import Folded, fold

SPEC = data(classes=5, shape=(3, 8, 8))


def settled(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Give the running statistics and the affine weights values that are nobody's default, then evaluate."""
    model.to(dtype).train()
    with torch.no_grad():
        for k in range(3):
            model((k + 1) * torch.rand(8, *SPEC.shape, dtype=dtype) - k / 2)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d) and module.affine:
                module.weight.uniform_(-1.5, 1.5)
                module.bias.normal_()
    return model.eval()


def tail(channels: int) -> list[nn.Module]:
    return [nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 5)]


def stack(conv: nn.Conv2d, norm: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels) if norm is None else norm, *tail(conv.out_channels))


NETWORKS: dict[str, tuple[Any, int]] = {
    "resnet": (lambda: ResNet(blocks=(1, 2), width=4).build(SPEC), 8),
    "resnet, SiLU, normalised": (lambda: ResNet((1, 1), 4, activation="silu", normalize=True).build(SPEC), 6),
    "preact": (lambda: PreActResNet(blocks=(1, 1), width=4).build(SPEC), 2),
    "preact, raw shortcut": (lambda: PreActResNet((2, 1), 4, shortcut="raw").build(SPEC), 3),
    "wrn": (lambda: WideResNet(depth=10, widen=1).build(SPEC), 3),
    "no bias": (lambda: stack(nn.Conv2d(3, 6, 3, bias=False)), 1),
    "bias": (lambda: stack(nn.Conv2d(3, 6, 3, bias=True)), 1),
    "groups": (lambda: stack(nn.Conv2d(3, 6, 3, groups=3)), 1),
    "dilation": (lambda: stack(nn.Conv2d(3, 6, 3, dilation=2, padding=1)), 1),
    "stride and reflection": (lambda: stack(nn.Conv2d(3, 6, 3, 2, padding=1, padding_mode="reflect")), 1),
    "same size": (lambda: stack(nn.Conv2d(3, 6, (3, 1), padding="same")), 1),
    "not affine": (lambda: stack(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, affine=False)), 1),
    "large eps": (lambda: stack(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, eps=0.1)), 1),
    "nested": (lambda: nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), *tail(4)), 1),
    "dropout": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), *tail(4)), 1),
}
"""Networks, and how many BatchNorms can be folded in each."""


def must_fold(model: nn.Module) -> Folded:
    folded = fold(model)
    assert folded is not None
    return folded


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(4, *SPEC.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def assert_same(model: nn.Module, folded: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    """Compare logits and the gradients that an attack would see."""
    results = []
    for network in (model, folded):
        x = images(dtype).requires_grad_()
        logits = network(x)
        (gradient,) = torch.autograd.grad((logits * torch.arange(1, 6).to(dtype)).sum(), x)
        results.append((logits.detach(), gradient))
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    for found, expected in zip(results[1], results[0], strict=True):
        scale = float(expected.abs().max())
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * scale)
    assert float(results[0][0].std()) > 1e-2  # so that the test can tell


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_function(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    build, folds = NETWORKS[name]
    model = settled(build(), dtype)
    folded = must_fold(model)
    assert folded.folds == folds
    assert_same(model, folded, dtype)


class TwoReaders(nn.Module):
    """The convolution's output is read by the BatchNorm and by the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.tail = nn.Sequential(*tail(4))

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv(x)
        return self.tail(self.norm(out) + out)  # type: ignore[no-any-return]


class SharedConv(nn.Module):
    """One convolution before two BatchNorms."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.tail = nn.Sequential(*tail(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.second(self.conv(self.first(self.conv(x)))))  # type: ignore[no-any-return]


class SharedNorm(nn.Module):
    """One BatchNorm after two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.tail = nn.Sequential(*tail(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.norm(self.second(self.norm(self.first(x)))))  # type: ignore[no-any-return]


class Branch(nn.Module):
    """A BatchNorm in a branch that reads an activation, and one that reads a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.branch, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.tail = nn.Sequential(*tail(4))

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv(x).relu()
        return self.tail(self.norm(out + self.branch(out)))  # type: ignore[no-any-return]


class Reassigned(nn.Module):
    """Layers under two names each."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.again, self.once_more = self.conv, self.norm
        self.tail = nn.Sequential(*tail(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.once_more(self.again(self.norm(self.conv(x)))))  # type: ignore[no-any-return]


def batch_statistics() -> nn.Module:
    return stack(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))


def old_weight_norm() -> nn.Module:
    """Its weight is made anew by a hook at each call."""
    with pytest.warns(FutureWarning):
        conv: nn.Conv2d = torch.nn.utils.weight_norm(nn.Conv2d(3, 4, 3))  # type: ignore[deprecated, unused-ignore]
    return stack(conv)


def parametrized() -> nn.Module:
    return stack(torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)))


@pytest.mark.parametrize(
    "build",
    [TwoReaders, SharedConv, SharedNorm, Branch, Reassigned, batch_statistics, old_weight_norm, parametrized],
)
def test_what_must_not_be_folded(build: Any) -> None:
    """Alone it is not folded; beside a pair that is, the whole stays right."""
    torch.manual_seed(0)
    assert fold(settled(build())) is None
    beside = settled(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), build()))
    folded = must_fold(beside)
    assert folded.folds == 1
    assert_same(beside, folded)


class ByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = stack(nn.Conv2d(3, 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) if x.mean() > 0.5 else self.body(1 - x)  # type: ignore[no-any-return]


class ByBatch(ByValue):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.body(x[k : k + 1])[0] for k in range(len(x))])


class Noisy(ByValue):
    """Noise that does not depend on x would become a constant in a trace."""

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x + 0.1 * torch.randn(3, 8, 8))  # type: ignore[no-any-return]


class Raises(ByValue):
    def forward(self, x: Tensor) -> Tensor:
        torch.rand(1)
        raise KeyError("never")


@pytest.mark.parametrize("build", [ByValue, ByBatch, Noisy, Raises, lambda: nn.Sequential(*tail(3))])
def test_what_cannot_be_traced(build: Any) -> None:
    model = build().train()
    model.body = getattr(model, "body", nn.Identity()).eval()
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    assert fold(model) is None
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_refresh_follows_the_original() -> None:
    torch.manual_seed(0)
    model = settled(NETWORKS["resnet"][0]())
    folded = must_fold(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    model(images()).square().sum().backward()
    optimizer.step()
    model.eval()
    before = folded(images())
    folded.refresh()
    assert not torch.allclose(folded(images()), before, rtol=1e-2)
    assert_same(model, folded)
    model.load_state_dict(settled(NETWORKS["resnet"][0]()).state_dict())
    folded.refresh()
    assert_same(model, folded)


def test_the_original_is_untouched() -> None:
    torch.manual_seed(0)
    model = settled(NETWORKS["preact"][0]()).train()
    model.get_submodule("layer1.0.bn2").eval()  # someone keeps a statistic fixed, and a weight
    model.get_parameter("linear.bias").requires_grad_(False)
    calls: list[str] = []
    handle = model.get_submodule("linear").register_forward_hook(lambda *_: calls.append("linear"))
    modes = {name: module.training for name, module in model.named_modules()}
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    flags = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    parts = {name: id(module) for name, module in model.named_modules()}
    random = torch.get_rng_state()

    folded = must_fold(model)
    folded(images())
    folded.refresh()

    assert {name: module.training for name, module in model.named_modules()} == modes
    assert [name for name, t in model.state_dict().items() if not torch.equal(t, weights[name])] == []
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == flags
    assert {name: id(module) for name, module in model.named_modules()} == parts
    assert torch.equal(torch.get_rng_state(), random)
    calls.clear()
    model(images())
    assert calls == ["linear"]
    handle.remove()


@pytest.mark.parametrize("name", ["preact", "dropout", "wrn"])
def test_training_the_original_does_not_reach_the_folded(name: str) -> None:
    torch.manual_seed(0)
    model = settled(NETWORKS[name][0]())
    expected = model(images())
    folded = must_fold(model.train())
    statistics = {n: t.clone() for n, t in model.state_dict().items() if "running" in n}
    for _ in range(2):
        model.train()
        torch.testing.assert_close(folded(images()), expected, rtol=1e-4, atol=1e-4)
    assert not any(module.training for module in folded.modules())
    assert all(torch.equal(model.state_dict()[n], t) for n, t in statistics.items())
    folded.train()
    assert all(module.training for module in model.eval().train().modules())


def test_hooks_are_not_folded_away() -> None:
    torch.manual_seed(0)
    model = settled(NETWORKS["resnet"][0]())
    seen: list[int] = []
    model.get_submodule("conv1").register_forward_hook(lambda *args: seen.append(len(args[2])))
    model.get_submodule("layer1.0.bn1").register_forward_hook(lambda *args: args[2] + 1)
    folded = must_fold(model)
    assert folded.folds == NETWORKS["resnet"][1] - 2
    seen.clear()
    folded(images())
    assert seen == [4]
    assert_same(model, folded)
    model.register_forward_hook(lambda *args: args[2] * 2)
    assert fold(model) is None


def test_no_weight_gets_a_gradient_it_did_not_have() -> None:
    torch.manual_seed(0)
    model = settled(NETWORKS["resnet"][0]()).requires_grad_(False)
    folded = must_fold(model)
    assert not any(parameter.requires_grad for parameter in folded.parameters())
    assert not folded(images()).requires_grad


@pytest.mark.parametrize("name", ["resnet", "preact", "wrn", "groups"])
def test_channels_last(name: str) -> None:
    torch.manual_seed(0)
    model = settled(NETWORKS[name][0]())
    reference = settled(NETWORKS[name][0]())
    reference.load_state_dict(model.state_dict())
    folded = must_fold(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert_same(reference, folded)
    folded.refresh()
    assert_same(reference, folded)
    found = folded(images().contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(found, reference(images()), rtol=1e-4, atol=1e-4)
