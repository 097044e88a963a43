"""WideResNet compared with a literal block, known names, counts and initial values."""

from math import sqrt
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.support.networks import CIFAR, batch_norm, data, names, parameters, settle
from uiat.errors import UserError
from uiat.models import WideResNet, get_model


def expected_names(blocks: int, *, first_shortcut: bool = True) -> set[str]:
    expected = {"conv1.weight", *batch_norm("bn1"), "fc.weight", "fc.bias"}
    for stage in (1, 2, 3):
        for k in range(blocks):
            block = f"block{stage}.layer.{k}"
            expected |= {f"{block}.conv1.weight", f"{block}.conv2.weight"}
            expected |= batch_norm(f"{block}.bn1") | batch_norm(f"{block}.bn2")
            if k == 0 and (stage > 1 or first_shortcut):
                expected.add(f"{block}.convShortcut.weight")
    return expected


@pytest.mark.parametrize(("name", "blocks", "count"), [("wrn-28-10", 4, 36_479_194), ("wrn-34-10", 5, 46_160_474)])
def test_names_and_number_of_parameters(name: str, blocks: int, count: int) -> None:
    with torch.device("meta"):
        model = get_model(name).build(CIFAR)
    assert names(model) == expected_names(blocks)
    assert parameters(model) == count


def test_the_narrow_network_needs_no_first_shortcut() -> None:
    assert names(get_model("wrn-10-1").build(CIFAR)) == expected_names(1, first_shortcut=False)


def test_blocks_are_those_of_the_trades_code() -> None:
    x = torch.rand(3, 3, 16, 16)
    model: Any = settle(WideResNet(depth=16, widen=2).build(data()), x)
    changing, keeping = model.block2.layer
    maps = torch.randn(2, 32, 6, 6)
    active = F.relu(changing.bn1(maps))
    out = changing.conv2(F.relu(changing.bn2(changing.conv1(active))))
    short = F.conv2d(active, changing.convShortcut.weight, stride=2)
    assert torch.allclose(changing(maps), short + out, atol=1e-6)
    maps = torch.randn(2, 64, 6, 6)
    out = keeping.conv2(F.relu(keeping.bn2(keeping.conv1(F.relu(keeping.bn1(maps))))))
    assert torch.allclose(keeping(maps), maps + out)


def test_the_whole_is_that_of_the_trades_code_at_32_pixels() -> None:
    x = torch.rand(2, 3, 32, 32)
    model: Any = settle(get_model("wrn-10-1").build(CIFAR), x)
    maps = F.relu(model.bn1(model.block3(model.block2(model.block1(model.conv1(x))))))
    assert torch.allclose(model(x), model.fc(F.avg_pool2d(maps, 8).flatten(1)), atol=1e-5)


def test_initial_values() -> None:
    torch.manual_seed(0)
    model = WideResNet(depth=10, widen=4).build(CIFAR)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            std = sqrt(2 / (module.kernel_size[0] * module.kernel_size[1] * module.out_channels))
            tolerance = 4 / sqrt(2 * module.weight.numel())  # four standard errors of a standard deviation
            assert module.weight.std().item() == pytest.approx(std, rel=tolerance)
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
    fc = cast(nn.Linear, model.fc)
    assert (fc.bias == 0).all()
    assert fc.weight.abs().max() <= 1 / sqrt(fc.in_features)


@pytest.mark.parametrize("depth", [-2, 4, 9, 29, 32])
def test_an_impossible_depth_is_explained(depth: int) -> None:
    with pytest.raises(UserError, match=rf"depth .*is {depth}: "):
        WideResNet(depth=depth).build(CIFAR)


def test_an_impossible_width_is_explained() -> None:
    with pytest.raises(UserError, match="widen is 0: give at least 1"):
        WideResNet(widen=0)
