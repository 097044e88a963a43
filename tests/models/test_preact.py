"""PreActResNet compared with a literal block, known names and known counts."""

from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F

from tests.support.networks import CIFAR, batch_norm, data, names, parameters, settle
from uiat.errors import UserError
from uiat.models import PreActResNet, get_model


def expected_names() -> set[str]:
    expected = {"conv1.weight", *batch_norm("bn"), "linear.weight", "linear.bias"}
    for stage in range(1, 5):
        for k in range(2):
            block = f"layer{stage}.{k}"
            expected |= {f"{block}.conv1.weight", f"{block}.conv2.weight"}
            expected |= batch_norm(f"{block}.bn1") | batch_norm(f"{block}.bn2")
    return expected | {f"layer{stage}.0.shortcut.0.weight" for stage in (2, 3, 4)}


def known_parameters() -> int:
    """Count layer by layer: convolutions k²·in·out, BatchNorm 2·channels, and the linear layer."""
    total, before = 9 * 3 * 64, 64
    for width in (64, 128, 256, 512):
        for fan_in in (before, width):
            total += 2 * fan_in + 9 * fan_in * width + 2 * width + 9 * width * width
        total += before * width if before != width else 0
        before = width
    return total + 2 * 512 + 512 * 10 + 10


def test_preactresnet18_has_the_known_names_and_number_of_parameters() -> None:
    with torch.device("meta"):
        model = get_model("preactresnet18").build(CIFAR)
    assert names(model) == expected_names()
    # ResNet-18's 11,173,962, less the shortcuts' and the stem's BatchNorm and the narrower first ones,
    # and with the final one: −1,792 − 128 − 896 + 1,024.
    assert parameters(model) == known_parameters() == 11_172_170


@pytest.mark.parametrize("shortcut", ["activated", "raw"])
def test_a_block_that_changes_the_width(shortcut: Any) -> None:
    x = torch.rand(3, 3, 12, 12)
    model = settle(PreActResNet((1, 1), 8, shortcut=shortcut).build(data()), x)
    block = cast(Any, model).layer2[0]
    maps = torch.randn(2, 8, 6, 6)
    out = F.relu(block.bn1(maps))
    short = F.conv2d(out if shortcut == "activated" else maps, block.shortcut[0].weight, stride=2)
    expected = block.conv2(F.relu(block.bn2(block.conv1(out)))) + short
    assert torch.allclose(block(maps), expected, atol=1e-6)


def test_a_wide_shortcut_sees_the_raw_input() -> None:
    x = torch.rand(3, 3, 12, 12)
    model = settle(PreActResNet((1, 1), 8, shortcut="raw-3x3").build(data()), x)
    block = cast(Any, model).layer2[0]
    maps = torch.randn(2, 8, 6, 6)
    short = F.conv2d(maps, block.shortcut[0].weight, stride=2, padding=1)
    expected = block.conv2(F.relu(block.bn2(block.conv1(F.relu(block.bn1(maps)))))) + short
    assert block.shortcut[0].weight.shape == (16, 8, 3, 3)
    assert torch.allclose(block(maps), expected, atol=1e-6)


def test_the_momentum_of_batchnorm() -> None:
    model = PreActResNet((1, 1), 8, norm_momentum=0.01).build(data())
    found = {m.momentum for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)}
    assert found == {0.01}


def test_an_identity_shortcut_carries_the_raw_input() -> None:
    model = PreActResNet((1,), 8).build(data()).eval()
    block = cast(Any, model).layer1[0]
    torch.nn.init.zeros_(block.conv2.weight)
    maps = torch.randn(2, 8, 6, 6)
    assert torch.equal(block(maps), maps)


def test_features_are_activated_and_pooled() -> None:
    x = torch.rand(3, 3, 16, 16)
    model: Any = settle(PreActResNet((1, 1), 8).build(data()), x)
    maps = F.relu(model.bn(model.layer2(model.layer1(model.conv1(x)))))
    assert torch.allclose(model.features(x), F.avg_pool2d(maps, 8).flatten(1), atol=1e-6)


def test_both_shortcuts_have_the_same_state_dict() -> None:
    with torch.device("meta"):
        activated = PreActResNet(shortcut="activated").build(CIFAR).state_dict()
        raw = PreActResNet(shortcut="raw").build(CIFAR).state_dict()
    assert {k: v.shape for k, v in activated.items()} == {k: v.shape for k, v in raw.items()}


def test_an_unknown_shortcut_is_explained() -> None:
    with pytest.raises(UserError, match=r"'activate'.*'activated'"):
        PreActResNet(shortcut=cast(Any, "activate")).build(CIFAR)
