"""BatchNorm folded into convolutions: the same function, and nothing of the original is touched."""

import pytest
import torch

from tests.support.foldable import NETWORKS, assert_same, images, must_fold, settled
from uiat.models.fast import speed_up


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_function(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    build, folds = NETWORKS[name]
    model = settled(build(), dtype)
    folded = must_fold(model)
    assert len(folded.pairs) == folds
    assert_same(model, folded, dtype)


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


def test_hooks_of_the_original_are_not_those_of_the_folded() -> None:
    model = settled(NETWORKS["preact"][0]())
    folded = must_fold(model)
    calls: list[str] = []
    model.get_submodule("linear").register_forward_hook(lambda *_: calls.append("linear"))
    folded(images())
    assert calls == []
    model(images())
    assert calls == ["linear"]


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


@pytest.mark.parametrize("layer", ["", "conv1", "layer1.0.bn1", "layer1.0", "linear"])
def test_a_network_with_hooks_is_used_as_it_is(layer: str) -> None:
    torch.manual_seed(0)
    model = settled(NETWORKS["resnet"][0]())
    seen: list[int] = []
    model.get_submodule(layer).register_forward_hook(lambda *args: seen.append(len(args[2])))
    fast = speed_up(model, images())
    assert fast.folds == 0
    seen.clear()
    fast.crafting_network()(images())
    assert seen == [4]


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
