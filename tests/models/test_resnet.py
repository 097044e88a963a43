"""ResNet compared with a public implementation and a public checkpoint."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pyautoattack
import pytest
import torch
from torch import nn

from tests.support.networks import CIFAR, batch_norm, data, names, parameters
from uiat.errors import UserError
from uiat.models import ResNet, get_model

EXAMPLES = Path(pyautoattack.__file__).parent / "examples"


@pytest.fixture(scope="module")
def public() -> ModuleType:
    spec = importlib.util.spec_from_file_location("public_resnet", EXAMPLES / "resnet.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_public_checkpoint_loads_strictly_and_gives_the_same_logits(public: ModuleType) -> None:
    weights = torch.load(EXAMPLES / "model_test.pt", weights_only=True, map_location="cpu")
    ours, theirs = get_model("resnet18").build(CIFAR).eval(), public.ResNet18().eval()
    ours.load_state_dict(weights, strict=True)
    theirs.load_state_dict(weights, strict=True)
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


def test_the_same_seed_gives_the_weights_of_the_public_code(public: ModuleType) -> None:
    torch.manual_seed(0)
    ours = get_model("resnet18").build(CIFAR).state_dict()
    torch.manual_seed(0)
    theirs = public.ResNet18().state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_train_mode_gives_the_public_gradients_and_statistics(public: ModuleType) -> None:
    torch.manual_seed(0)
    theirs = public.ResNet(public.BasicBlock, [1, 1, 1, 1]).double()
    ours = ResNet(blocks=(1, 1, 1, 1)).build(CIFAR).double()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    for model in (ours, theirs):
        model(x).logsumexp(1).sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert a.grad is not None
        assert torch.allclose(a.grad, b.grad)
    assert all(torch.allclose(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))


def test_resnet18_has_the_known_number_of_parameters() -> None:
    with torch.device("meta"):
        assert parameters(get_model("resnet18").build(CIFAR)) == 11_173_962


def expected_names(blocks: tuple[int, ...]) -> set[str]:
    expected = {"conv1.weight", *batch_norm("bn1"), "linear.weight", "linear.bias"}
    for stage, count in enumerate(blocks, start=1):
        for k in range(count):
            block = f"layer{stage}.{k}"
            expected |= {f"{block}.conv1.weight", f"{block}.conv2.weight"}
            expected |= batch_norm(f"{block}.bn1") | batch_norm(f"{block}.bn2")
            if stage > 1 and k == 0:
                expected |= {f"{block}.shortcut.0.weight"} | batch_norm(f"{block}.shortcut.1")
    return expected


@pytest.mark.parametrize("blocks", [(1,), (1, 1, 1), (2, 2, 2, 2), (3, 4, 6, 3)])
def test_state_dict_names(blocks: tuple[int, ...]) -> None:
    with torch.device("meta"):
        model = ResNet(blocks=blocks, width=8, normalize=True).build(CIFAR)
    assert names(model) == expected_names(blocks)


def test_stage_widths_and_resolutions() -> None:
    model = ResNet(blocks=(1, 2, 1), width=8).build(data())
    out = torch.rand(2, 8, 16, 16)
    shapes = []
    for name in ("layer1", "layer2", "layer3"):
        out = model.get_submodule(name)(out)
        shapes.append(tuple(out.shape[1:]))
    assert shapes == [(8, 16, 16), (16, 8, 8), (32, 4, 4)]


def test_resnet8_is_small() -> None:
    model = get_model("resnet8").build(CIFAR)
    assert [name for name, _ in model.named_children() if name.startswith("layer")] == [
        "layer1",
        "layer2",
        "layer3",
    ]
    assert isinstance(model.linear, nn.Linear)
    assert model.linear.in_features == 64
    assert parameters(model) < 100_000


@pytest.mark.parametrize(("name", "value"), [("blocks", ()), ("blocks", (1, 0)), ("width", 0), ("width", 10**5)])
def test_impossible_sizes_are_explained(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"{name}.* at (least|most) "):
        ResNet(**{name: value}).build(CIFAR)
