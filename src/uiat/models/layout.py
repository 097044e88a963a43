"""The memory layout of a network's convolutions."""

import torch
from torch import Tensor, nn

from uiat.models.untouched import full_precision, untouched

LOGITS = 1e-4
"""How far logits may be from others that compute the same, relative to the largest."""
GRADIENTS = 1e-2
"""How far a gradient may be from another that computes the same, relative to its norm."""


def to_channels_last(model: nn.Module, x: Tensor | None = None) -> nn.Module:
    """Keep the weights of 2-D convolutions in channels_last memory, where the model can run in it.

    One that flattens its maps with `view`, say, cannot; and on CPUs training would meet a fault of oneDNN, which
    computes wrong gradients for the weights of strided 1×1 convolutions with few channels in that memory, or writes
    beyond its own (oneDNN's issue 6035). The bundled networks have none.

    Args:
        model: the classifier, which stays as it is but for the layout.
        x: two or more samples, to see whether the model computes the same and can be trained; if not, it goes back to
            the layout it had. Without them nothing is tried, nor with a bundled network, which the tests have tried.
    """
    strided = any(max(conv.kernel_size) == 1 and max(conv.stride) > 1 for conv in _convolutions(model))
    on_cpu = any(parameter.device.type == "cpu" for parameter in model.parameters())
    if strided and on_cpu:
        return model
    x = None if _is_bundled(model) else x
    before = [(conv.weight, conv.weight.data) for conv in _convolutions(model)]
    expected = None if x is None else _trial(model, x, training=False)
    for weight, data in before:
        weight.data = data.to(memory_format=torch.channels_last)
    if x is None or (
        expected is not None
        and _agree(_trial(model, x, training=False), expected)
        and _trial(model, x, training=True) is not None
    ):
        return model
    for weight, data in before:
        weight.data = data
    return model


def keeps_channels_last(model: nn.Module) -> bool:
    """Whether every 2-D convolution has its weights in channels_last memory."""
    return all(conv.weight.stride(1) == 1 for conv in _convolutions(model))


def close(ours: Tensor, theirs: Tensor, tolerance: float = LOGITS) -> bool:
    """Whether logits are the same up to rounding."""
    return bool((ours - theirs).abs().max() <= tolerance * theirs.abs().max().clamp(min=1e-12))


def _is_bundled(model: nn.Module) -> bool:
    return type(model).__module__.startswith(f"{__package__}.")


def _convolutions(model: nn.Module) -> list[nn.Conv2d]:
    """Return the convolutions whose weights are their own; parametrised ones compute theirs."""
    found = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    return [conv for conv in found if isinstance(conv._parameters.get("weight"), Tensor) and conv.weight.ndim == 4]


def _trial(model: nn.Module, x: Tensor, *, training: bool) -> list[Tensor] | None:
    """Return logits and all gradients, for the input first, of a forward and a backward; `None` where they fail."""
    with untouched(model), full_precision(x.device), torch.enable_grad():
        try:
            model.train(training)
            at = x[:2].detach().clone().requires_grad_()
            logits: Tensor = model(at)
            wanted = [at, *(p for p in model.parameters() if p.requires_grad)]
            weights = torch.arange(1, logits[0].numel() + 1).to(logits).view_as(logits[0])
            found = torch.autograd.grad((logits * weights).sum(), wanted, allow_unused=True)
        except Exception:  # anyone's own forward may raise anything
            return None
        gradients = [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, found, strict=True)]
        return [logits.detach(), *gradients]


def _agree(ours: list[Tensor] | None, theirs: list[Tensor]) -> bool:
    if ours is None or not close(ours[0], theirs[0]):
        return False
    largest = max(float(gradient.norm()) for gradient in theirs[1:])
    pairs = zip(ours[1:], theirs[1:], strict=True)
    return all(float((a - b).norm()) <= GRADIENTS * (float(b.norm()) + GRADIENTS * largest) for a, b in pairs)
