"""Properties of every bundled network, in one table."""

import copy
import dataclasses
import pickle
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

from tests.support.networks import data, settle
from uiat.errors import UserError
from uiat.models import DESCRIPTIONS, MODELS, Normalize, PreActResNet, ResNet, WideResNet, get_model

Config = ResNet | PreActResNet | WideResNet
SMALL: dict[str, Config] = {
    "resnet": ResNet(blocks=(1, 2), width=4),
    "resnet, four stages": ResNet(blocks=(1, 1, 1, 1), width=4),
    "preact": PreActResNet(blocks=(1, 2), width=4),
    "preact, raw": PreActResNet(blocks=(1, 1, 1), width=4, shortcut="raw"),
    "wide": WideResNet(depth=10, widen=1),
}
each = pytest.mark.parametrize("config", SMALL.values(), ids=SMALL.keys())


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_line_of_description(name: str) -> None:
    assert DESCRIPTIONS[name].strip()
    assert "\n" not in DESCRIPTIONS[name]
    assert list(DESCRIPTIONS) == list(MODELS)


def test_a_misspelt_model_is_explained() -> None:
    with pytest.raises(UserError, match=r"'resnet-18'.*'resnet18'"):
        get_model("resnet-18")


@each
@settings(max_examples=12)
@given(
    height=st.integers(8, 40),
    width=st.integers(8, 40),
    channels=st.sampled_from([1, 3]),
    classes=st.integers(2, 100),
    normalize=st.booleans(),
)
def test_any_size_channels_and_classes(
    config: Config, height: int, width: int, channels: int, classes: int, normalize: bool
) -> None:
    spec = data(classes, (channels, height, width))
    model: Any = dataclasses.replace(config, normalize=normalize).build(spec)
    x = torch.rand(2, *spec.shape)
    f = model.features(x)
    assert f.ndim == 2
    assert model.eval()(x).shape == (2, classes)
    assert torch.equal(model(x), model.head(model.features(x)))


@each
def test_every_size_from_8_to_40(config: Config) -> None:
    model = config.build(data()).eval()
    with torch.no_grad():
        for size in range(8, 41):
            assert model(torch.rand(1, 3, size, 48 - size)).isfinite().all()


@each
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_the_gradient_reaches_every_parameter_and_the_input(config: Config, activation: Any) -> None:
    torch.manual_seed(0)
    model = dataclasses.replace(config, activation=activation).build(data())
    x = torch.rand(8, 3, 16, 16, requires_grad=True)
    nn.functional.cross_entropy(model(x), torch.arange(8)).backward()
    assert x.grad is not None
    assert x.grad.abs().amax((1, 2, 3)).gt(0).all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@each
def test_activation_is_used_everywhere(config: Config) -> None:
    relu = config.build(data())
    silu = dataclasses.replace(config, activation="silu").build(data())
    count = sum(isinstance(module, nn.ReLU) for module in relu.modules())
    assert count == sum(isinstance(module, nn.SiLU) for module in silu.modules()) > 1
    assert not any(isinstance(module, nn.ReLU) for module in silu.modules())
    assert list(relu.state_dict()) == list(silu.state_dict())


@pytest.mark.parametrize(
    ("options", "means", "stds"),
    [
        ({}, (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
        ({"statistics": "cifar100"}, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ],
)
@each
def test_normalisation_is_inside_and_not_in_the_state_dict(
    config: Config, options: dict[str, Any], means: tuple[float, ...], stds: tuple[float, ...]
) -> None:
    x = torch.rand(4, 3, 16, 16)
    plain = settle(config.build(data()), x)
    normal = dataclasses.replace(config, normalize=True, **options).build(data()).eval()
    normal.load_state_dict(plain.state_dict(), strict=True)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (means, stds))
    assert torch.allclose(normal(x), plain((x - mean) / std), atol=1e-5)
    assert normal.double()(x.double()).dtype == torch.float64


def test_grey_images_are_normalised_to_minus_one_and_one() -> None:
    model = ResNet(blocks=(1,), width=4, normalize=True).build(data(shape=(1, 8, 8)))
    assert isinstance(model.normalize, Normalize)
    assert model.normalize(torch.tensor([[[0.0, 1.0]]])).tolist() == [[[-1.0, 1.0]]]


def test_normalisation_is_off_by_default() -> None:
    model: Any = ResNet(blocks=(1,), width=4).build(data())
    x = torch.rand(1, 3, 8, 8)
    assert model.normalize(x) is x


def test_normalisation_of_other_channels_is_explained() -> None:
    with pytest.raises(UserError, match="1 or 3 channels, not 4"):
        ResNet(normalize=True).build(data(shape=(4, 8, 8)))


@each
def test_data_that_are_no_images_are_explained(config: Config) -> None:
    with pytest.raises(UserError, match=r"\(20,\)"):
        config.build(data(shape=(20,)))


@each
def test_an_unknown_activation_is_explained(config: Config) -> None:
    with pytest.raises(UserError, match="unknown activation 'selu'"):
        dataclasses.replace(config, activation=cast(Any, "selu")).build(data())


@each
@pytest.mark.parametrize("normalize", [False, True])
def test_tracing_gives_the_same_network(config: Config, normalize: bool) -> None:
    x = torch.rand(3, 3, 12, 20)
    model = settle(dataclasses.replace(config, normalize=normalize).build(data()), x)
    assert torch.equal(fx.symbolic_trace(model)(x), model(x))


@each
def test_copies_are_equal_and_separate(config: Config) -> None:
    x = torch.rand(3, 3, 12, 12)
    model = settle(config.build(data()), x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), model(x))
        assert not {id(p) for p in twin.parameters()} & {id(p) for p in model.parameters()}


@each
def test_the_built_network_remembers_the_name_of_its_features(config: Config) -> None:
    assert config.build(data()).penultimate_layer == ""
    assert dataclasses.replace(config, features="conv1").build(data()).penultimate_layer == "conv1"
