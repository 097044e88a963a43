"""Memory format of a network's convolutions."""

import torch
from torch import Tensor, nn

from uiat.models.probe import agree, full_precision, logits_and_gradients, untouched


def to_channels_last(model: nn.Module, x: Tensor | None = None) -> nn.Module:
    """Convert the weights of 2-D convolutions to channels_last memory if the model can run in it; return the model.

    A model that flattens its maps with `view`, for example, cannot. On CPUs a model with strided 1×1 convolutions is
    left unchanged: oneDNN computes wrong gradients for their weights in that memory format when they have few channels,
    or writes out of bounds (oneDNN's issue 6035). The bundled networks have none.

    >>> model = to_channels_last(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten()))
    >>> model[0].weight.is_contiguous(memory_format=torch.channels_last)
    True

    Args:
        model: the classifier; only its memory format changes.
        x: two or more samples, to check that the model still computes the same and can be trained; if not, the old
            format is restored. Nothing is checked without samples, nor for a bundled network.
    """
    convolutions = _convolutions(model)
    strided = any(max(conv.kernel_size) == 1 and max(conv.stride) > 1 for conv in convolutions)
    on_cpu = any(parameter.device.type == "cpu" for parameter in model.parameters())
    if strided and on_cpu:
        return model
    is_bundled = type(model).__module__.startswith(f"{__package__}.")
    tried = None if is_bundled or x is None else x[:2].detach()
    before = [(conv.weight, conv.weight.data) for conv in convolutions]
    expected = None if tried is None else _try(model, tried, training=False)
    for weight, data in before:
        weight.data = data.to(memory_format=torch.channels_last)
    if tried is not None and not _computes(model, tried, expected):
        for weight, data in before:
            weight.data = data
    return model


def keeps_channels_last(model: nn.Module) -> bool:
    """Return whether every 2-D convolution has its weights in channels_last memory."""
    return all(conv.weight.stride(1) == 1 for conv in _convolutions(model))


def _convolutions(model: nn.Module) -> list[nn.Conv2d]:
    """Return the convolutions whose weight is a parameter, not computed by a parametrization."""
    convs = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    return [conv for conv in convs if isinstance(conv._parameters.get("weight"), Tensor) and conv.weight.ndim == 4]


def _computes(model: nn.Module, x: Tensor, expected: list[Tensor] | None) -> bool:
    """Return whether the model computes the expected values in eval mode and can be trained."""
    computed = _try(model, x, training=False)
    if expected is None or computed is None or not agree(computed, expected):
        return False
    return _try(model, x, training=True) is not None


def _try(model: nn.Module, x: Tensor, *, training: bool) -> list[Tensor] | None:
    """Return logits and gradients for x and the parameters; `None` if the model fails."""
    with untouched(model), full_precision(x.device):
        try:
            model.train(training)
            return logits_and_gradients(model, x, [p for p in model.parameters() if p.requires_grad])
        except Exception:  # a custom forward may raise anything
            return None
