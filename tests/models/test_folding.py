"""BatchNorm folded into convolutions: attacks see the same function, for many networks and after changes."""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.support import networks
from tests.support.networks import NormedLeNet, data
from uiat.attacks import PGD
from uiat.crafting import crafting
from uiat.methods import METHODS
from uiat.models import PreActResNet, ResNet, WideResNet, penultimate
from uiat.models.fast import AcceleratedModel, speed_up
from uiat.models.features import Features
from uiat.models.folding import AcceleratedCopy, folded_copy
from uiat.types import Batch, Clock

SPEC = data(classes=5, shape=(3, 8, 8))


class Net(nn.Module):
    """Layers by name, and a forward that reads them."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


class Keeps(nn.Module):
    """Has tensors besides its layers: a parameter, and a buffer that training re-assigns."""

    centre: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)
        self.scale = nn.Parameter(torch.rand(4, 1, 1) + 0.5)
        self.register_buffer("centre", torch.zeros(4, 1, 1))
        self.power = 1.0

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        if self.training:
            self.centre = 0.5 * self.centre + x.detach().mean((0, 2, 3))[:, None, None]
        x = (x + 2 * self.centre) * self.scale
        return self.power * self.linear(x.mean((2, 3)) + torch.tensor([1, 2, 3, 4]))  # type: ignore[no-any-return]


class Halved(Keeps):
    """With `features` and `head`, which are traced under other names."""

    def features(self, x: Tensor) -> Tensor:
        return ((F.relu(self.norm(self.conv(x))) + self.centre) * self.scale).mean((2, 3))

    def head(self, f: Tensor) -> Tensor:
        return self.linear(f)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def tail(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 5))


def stack(conv: nn.Module, norm: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(conv, nn.BatchNorm2d(6) if norm is None else norm, *tail(6))


def named_features() -> nn.Module:
    layers = (nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(216, 5))
    model = nn.Sequential(*layers)
    model.penultimate_layer = "3"  # type: ignore[assignment]
    return model


@dataclass(frozen=True)
class Case:
    """How to build a network, how many of its BatchNorms can be folded, and the shape of its images."""

    build: Callable[[], nn.Module]
    folds: int = 1
    shape: tuple[int, ...] = SPEC.shape


CASES = {
    "resnet": Case(lambda: ResNet(blocks=(1, 2), width=4).build(SPEC), 8),
    "resnet, SiLU, normalised": Case(lambda: ResNet((1, 1), 4, activation="silu", normalize=True).build(SPEC), 6),
    "features of a stage": Case(lambda: ResNet((1, 1), 4, features="layer2").build(SPEC), 6),
    "features of the head": Case(lambda: ResNet((1, 1), 4, features="linear").build(SPEC), 6),
    "preact": Case(lambda: PreActResNet(blocks=(1, 1), width=4).build(SPEC), 2),
    "preact, wide shortcut": Case(lambda: PreActResNet((2, 1), 4, shortcut="raw-3x3").build(SPEC), 3),
    "preact, raw shortcut, SiLU": Case(
        lambda: PreActResNet((2, 1), 4, shortcut="raw", activation="silu").build(SPEC), 3
    ),
    "wrn": Case(lambda: WideResNet(depth=10, widen=1).build(SPEC), 3),
    "no bias": Case(lambda: stack(nn.Conv2d(3, 6, 3, bias=False))),
    "bias": Case(lambda: stack(nn.Conv2d(3, 6, 3, bias=True))),
    "groups": Case(lambda: stack(nn.Conv2d(3, 6, 3, groups=3))),
    "dilation": Case(lambda: stack(nn.Conv2d(3, 6, 3, dilation=2, padding=1))),
    "stride and reflection": Case(lambda: stack(nn.Conv2d(3, 6, 3, 2, padding=1, padding_mode="reflect"))),
    "same size": Case(lambda: stack(nn.Conv2d(3, 6, (3, 1), padding="same"))),
    "not affine": Case(lambda: stack(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, affine=False))),
    "large eps": Case(lambda: stack(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, eps=0.1))),
    "nested": Case(lambda: nn.Sequential(nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)), *tail(6))),
    "dropout": Case(lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Dropout(0.5), *tail(6))),
    "in place": Case(lambda: stack(nn.Conv2d(3, 6, 3), nn.Sequential(nn.BatchNorm2d(6), nn.ReLU(inplace=True)))),
    "in place after the features": Case(named_features),
    "a last layer that runs twice": Case(
        lambda: Net(
            lambda net, x: net.linear(net.linear(net.norm(net.conv(x)).relu().mean((2, 3)))),
            **{"conv": nn.Conv2d(3, 5, 3), "norm": nn.BatchNorm2d(5), "linear": nn.Linear(5, 5)},
        )
    ),
    "tensors of its own": Case(Keeps),
    "features and head": Case(Halved),
    "LeNet": Case(networks.LeNet, 0, (1, 8, 8)),
    "LeNet with BatchNorm": Case(NormedLeNet, 2, (1, 8, 8)),
    "standardised weights": Case(networks.WeightStandardised, 1, (1, 8, 8)),
    "volumes": Case(networks.Volumes, 1, (1, 8, 8)),
    "global context": Case(networks.GlobalContext, 1, (1, 8, 8)),
    "sizes": Case(networks.Sizes, 1, (1, 8, 8)),
}


def settled(build: Callable[[], nn.Module], shape: tuple[int, ...] = SPEC.shape, dtype: Any = torch.float32) -> Any:
    """Return the network in training mode, with BatchNorm statistics and weights that differ from the defaults."""
    torch.manual_seed(0)
    model = build().to(dtype).train()
    with torch.no_grad():
        for k in range(3):
            model((k + 1) * torch.rand(8, *shape, dtype=dtype) - k / 2)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d) and module.affine:
                module.weight.uniform_(-1.5, 1.5)
                module.bias.normal_()
    return model


def images(shape: tuple[int, ...] = SPEC.shape, dtype: Any = torch.float32) -> Tensor:
    return torch.rand(4, *shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def facts(model: nn.Module) -> dict[str, object]:
    """Return everything that must not change."""
    return {
        "modules": [(name, id(module), module.training) for name, module in model.named_modules()],
        "parameters": [(name, id(p), p.requires_grad, p.grad) for name, p in model.named_parameters()],
        "tensors": {name: (t.stride(), t.tolist()) for name, t in model.state_dict().items()},
        "streams": (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()),  # type: ignore[index]
    }


def assert_same(fast: AcceleratedModel, x: Tensor) -> None:
    """Compare logits, features and the gradient that an attack sees with those of the network itself."""
    found: list[list[Tensor]] = []
    with crafting(fast) as crafted:
        assert isinstance(crafted, AcceleratedCopy) == (fast.folds > 0)
        assert not any(module.training for module in crafted.modules())
        for network in (crafted, fast.model):
            at = x.clone().requires_grad_()
            logits = network(at)
            (gradient,) = torch.autograd.grad((logits * torch.arange(1, logits.shape[1] + 1)).sum(), at)
            found.append([logits.detach(), gradient, *(part.detach() for part in penultimate(network, x))])
    tolerance = 1e-4 if x.dtype == torch.float32 else 1e-10
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))
    assert float(found[1][0].std()) > 1e-3  # else the test could not detect a difference


SINGLE = ("resnet", "wrn", "no bias", "tensors of its own")


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, torch.float64) for name in CASES] + [(name, torch.float32) for name in SINGLE]
)
def test_the_copy_computes_what_the_network_does(name: str, dtype: torch.dtype) -> None:
    """When it is new, after its weights changed in place, and after its tensors were replaced."""
    case = CASES[name]
    model, x = settled(case.build, case.shape, dtype), images(case.shape, dtype)
    for norm in [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)][:1]:
        norm.eval()  # a frozen statistic, and a frozen weight
    list(model.parameters())[-1].requires_grad_(False)
    before = facts(model)
    fast = speed_up(model, x)
    assert facts(model) == before
    assert fast.folds == case.folds
    assert_same(fast, x)
    assert fast.folded_copy_is_valid(x)
    assert facts(model) == before

    for parameter in model.parameters():
        parameter.data = parameter.data * 1.5
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.data.add_(0.1)
    assert_same(fast, x)
    other = {name: value + 0.1 if value.is_floating_point() else value for name, value in model.state_dict().items()}
    model.load_state_dict(other, assign=True)
    assert_same(fast, x)
    with crafting(fast, "train") as crafted:
        assert crafted is fast, "batch statistics cannot be folded"


@pytest.mark.parametrize("method", [name for name in METHODS if name != "hat"])
def test_every_method_computes_the_same(method: str) -> None:
    plain = settled(CASES["features of the head"].build, dtype=torch.double)
    quick = copy.deepcopy(plain)
    fast = speed_up(quick, images(dtype=torch.double))
    assert fast.folds > 0
    found: list[dict[str, Tensor]] = []
    for model, given in ((plain, plain), (quick, fast)):
        built = METHODS[method].build(SPEC, seed=3).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = {}
        for epoch in (7, 8, 9, 10):
            g = torch.Generator().manual_seed(epoch % 2)
            x = torch.rand(12, *SPEC.shape, generator=g, dtype=torch.double)
            batch = Batch(x, torch.randint(0, 5, (12,), generator=g), torch.randperm(24, generator=g)[:12])
            loss = built(given, batch, Clock(epoch, 0, 10)).total
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[f"loss {epoch}"] = loss.detach()
        found.append({**losses, **model.state_dict(), **built.state_dict()})
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-7, atol=1e-9, msg=name)


CONV, NORM = (lambda: nn.Conv2d(3, 3, 3, padding=1)), (lambda: nn.BatchNorm2d(3))
APART: dict[str, Callable[[], nn.Module]] = {
    "two read the convolution": lambda: Net(
        lambda net, x: net.tail(net.norm(out := net.conv(x)) + out), conv=CONV(), norm=NORM(), tail=tail(3)
    ),
    "one convolution, two norms": lambda: Net(
        lambda net, x: net.tail(net.second(net.conv(net.first(net.conv(x))))),
        **{"conv": CONV(), "first": NORM(), "second": NORM(), "tail": tail(3)},
    ),
    "two convolutions, one norm": lambda: Net(
        lambda net, x: net.tail(net.norm(net.second(net.norm(net.first(x))))),
        **{"first": CONV(), "second": CONV(), "norm": NORM(), "tail": tail(3)},
    ),
    "norms of an activation and of a sum": lambda: Net(
        lambda net, x: net.tail(net.norm((out := net.conv(x).relu()) + net.branch(out))),
        **{"conv": CONV(), "branch": NORM(), "norm": NORM(), "tail": tail(3)},
    ),
    "layers under two names": lambda: Net(
        lambda net, x: net.tail(net.once_more(net.again(net.norm(net.conv(x))))),
        **{"conv": (conv := CONV()), "norm": (norm := NORM()), "again": conv, "once_more": norm, "tail": tail(3)},
    ),
    "batch statistics": lambda: stack(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, track_running_stats=False)),
    "parametrized": lambda: stack(parametrizations.weight_norm(nn.Conv2d(3, 6, 3))),
}


@pytest.mark.parametrize("name", APART)
def test_what_must_not_be_folded(name: str) -> None:
    """Alone it is not folded; together with a pair that is, the whole network computes the same."""
    assert speed_up(settled(APART[name]), images()).folds == 0
    fast = speed_up(settled(lambda: nn.Sequential(CONV(), NORM(), APART[name]())), images())
    assert fast.folds == 1
    assert_same(fast, images())


def old_weight_norm() -> nn.Module:
    """Its weight is recomputed by a hook at each call."""
    with pytest.warns(FutureWarning):
        conv: nn.Conv2d = torch.nn.utils.weight_norm(nn.Conv2d(3, 6, 3))  # type: ignore[deprecated, unused-ignore]
    return stack(conv)


def body(function: Callable[[Any, Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: Net(function, body=stack(nn.Conv2d(3, 6, 3)))


def raises(net: Any, x: Tensor) -> Tensor:
    if net.body[1].training:
        return net.body(x)  # type: ignore[no-any-return]
    torch.rand(1)
    raise KeyError("never")


class PlainTensor(nn.Module):
    """A tensor that is neither a parameter nor a buffer may be another one at the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.body = torch.rand(3, 8, 8), stack(nn.Conv2d(3, 6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x + self.shift)  # type: ignore[no-any-return]


class Counting(PlainTensor):
    """A forward that changes with the number of its calls: a trace is another function."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        return self.body(x * self.calls)  # type: ignore[no-any-return]


UNTRACED: dict[str, Callable[[], nn.Module]] = {
    "decides by values": body(lambda net, x: net.body(x) if x.mean() > 0.5 else net.body(1 - x)),
    "loops over samples": body(lambda net, x: torch.cat([net.body(x[k : k + 1]) for k in range(len(x))])),
    # Noise that does not depend on x would become a constant in a trace.
    "noise": body(lambda net, x: net.body(x + 0.1 * torch.randn(3, 8, 8))),
    "raises": body(raises),
    "a plain tensor": PlainTensor,
    "counts its calls": Counting,
    "hooks that compute weights": old_weight_norm,
    "nothing to fold": lambda: nn.Sequential(*tail(3)),
}


@pytest.mark.parametrize("name", UNTRACED)
def test_what_cannot_be_folded_is_used_unchanged(name: str) -> None:
    model, x = settled(UNTRACED[name]), images()
    before = facts(model)
    assert folded_copy(model, x[:2], Features()) is None
    assert facts(model) == before
    if name != "raises":
        fast = speed_up(model, x)
        with crafting(fast) as crafted:
            assert crafted is fast
        METHODS["trades"].build(SPEC)(fast, Batch(x, torch.arange(4), torch.arange(4)), Clock(1, 0, 2)).total.backward()


@pytest.mark.parametrize("make", [networks.Rolls, networks.NumpyRolls, networks.OwnRolls])
def test_chance_of_any_kind_is_not_folded_away(make: type[nn.Module]) -> None:
    for attempt in range(4):
        model = settled(make, (1, 8, 8))
        random.seed(attempt)
        np.random.seed(attempt)
        before = facts(model)
        assert speed_up(model, images((1, 8, 8))).folds == 0
        assert facts(model) == before


@pytest.mark.parametrize("layer", ["", "conv1", "layer1.0"])
def test_hooks_run_where_they_were_registered(layer: str) -> None:
    """Registered before: the network itself is used. Registered after: the copy has none of them."""
    model, seen = settled(CASES["resnet"].build), []
    fast = speed_up(model, images())
    model.get_submodule(layer).register_forward_hook(lambda *args: seen.append(len(args[2])))
    with crafting(fast) as crafted:
        crafted(images())
    assert seen == []
    fast = speed_up(model, images())
    assert fast.folds == 0
    seen.clear()
    fast.crafting_network()(images())
    assert seen == [4]


@pytest.mark.parametrize("name", ["tensors of its own", "features and head", "LeNet with BatchNorm"])
def test_a_copy_of_another_type_or_device_is_not_used(name: str) -> None:
    """On the meta device, which every machine has."""
    case = CASES[name]
    model, x = settled(case.build, case.shape), images(case.shape)
    fast = speed_up(model, x)
    model.double()
    with crafting(fast) as crafted:
        assert crafted is fast
        assert PGD(steps=2)(crafted, x.double(), torch.arange(4)).dtype == torch.double
    assert fast.folded_copy_is_valid(x.double())
    model.float()
    assert_same(fast, x)
    model.to("meta")
    with crafting(fast) as crafted:
        assert crafted is fast


def test_the_layout_that_the_network_can_run_in_is_kept() -> None:
    fast = speed_up(settled(NormedLeNet, (1, 8, 8)), images((1, 8, 8)))
    convs = [module for module in fast.crafting_network().modules() if isinstance(module, nn.Conv2d)]
    assert [conv.weight.is_contiguous() for conv in convs] == [True] * 2


@pytest.mark.parametrize("change", ["a number", "a layer", "the number of classes"])
def test_a_change_that_a_trace_cannot_see_ends_the_copy(change: str) -> None:
    model = settled(Keeps)
    fast = speed_up(model, images())
    assert fast.folded_copy_is_valid(images())
    if change == "a number":
        model.power = 1.1
    elif change == "a layer":
        model.conv = nn.Conv2d(3, 4, 5)
    else:
        model.linear = nn.Linear(4, 3)
    assert not fast.folded_copy_is_valid(images())
    assert fast.folds == 0
    with crafting(fast) as crafted:
        assert crafted is fast
    assert fast.folded_copy_is_valid(images()), "without a copy there is nothing to say"


def test_weights_that_are_not_finite_are_no_sign_of_a_stale_copy() -> None:
    model = settled(Keeps)
    fast = speed_up(model, images())
    torch.nn.init.constant_(model.linear.bias, float("nan"))
    assert fast.folded_copy_is_valid(images())
    assert fast.folds == 1


def test_no_weight_gets_a_gradient_it_did_not_have() -> None:
    fast = speed_up(settled(CASES["resnet"].build).requires_grad_(False), images())
    crafted = fast.crafting_network()
    assert not any(parameter.requires_grad for parameter in crafted.parameters())
    assert not crafted(images()).requires_grad


def test_folding_draws_nothing() -> None:
    """New convolutions draw no weights, which would advance the random stream of a GPU."""
    model = settled(NormedLeNet, (1, 8, 8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Conv2d, "reset_parameters", lambda conv: pytest.fail("weights were drawn"))
        assert speed_up(model, images((1, 8, 8))).folds == 2


def test_the_model_is_the_only_part_with_weights() -> None:
    """A deep copy has only the model, and a model can be sped up again."""
    model = settled(CASES["resnet"].build)
    fast = speed_up(speed_up(model, images()), images())
    assert fast.model is model
    assert fast.folds > 0
    assert list(fast.state_dict()) == [f"model.{name}" for name in model.state_dict()]
    assert list(fast.parameters()) == list(model.parameters())
    other = copy.deepcopy(fast)
    assert other.folds == 0
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
        assert not other.eval()(images()).any()
        assert fast.crafting_network()(images()).any()
    assert speed_up(model, images(), fold=False).folds == 0
