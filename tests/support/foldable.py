"""Networks that can be folded, and what must then be the same."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.support.networks import data
from uiat.models import PreActResNet, ResNet, WideResNet
from uiat.models.fast import speed_up
from uiat.models.folding import AcceleratedCopy

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
    "preact, wide shortcut": (lambda: PreActResNet((2, 1), 4, shortcut="raw-3x3").build(SPEC), 3),
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


def must_fold(model: nn.Module) -> AcceleratedCopy:
    """Return the folded copy of a network."""
    network = speed_up(model, images(next(model.parameters()).dtype)).crafting_network()
    assert isinstance(network, AcceleratedCopy)
    return network


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
