"""Normalisation inside a network, and wrappers for custom networks: normalised inputs, and logits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from torch import Tensor, fx, nn

from uiat.errors import UserError, unknown
from uiat.fields import SHARE, optional_in_key, require
from uiat.models.networks import STATISTICS, Normalize


@dataclass(frozen=True, kw_only=True)
class InputStatistics:
    """Mean and standard deviation with which a network normalises its inputs."""

    mean: tuple[float, ...] = optional_in_key(())
    """Mean of each channel of images in [0, 1], which are normalised inside the model with `mean` and `std`; empty:
    they are not, or as the model says."""
    std: tuple[float, ...] = optional_in_key(())
    """Standard deviation of each channel."""

    def __post_init__(self) -> None:
        require(self, mean=SHARE, std=SHARE)

    def check_statistics(self, channels: int) -> None:
        """Raise a `UserError` unless there are one mean and one std above 0 for each channel, or none."""
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, channels):
            raise UserError(
                f"mean has {len(self.mean)} numbers and std {len(self.std)}, but images have {channels} channel(s): "
                "give one number of each per channel."
            )
        if self.std and min(self.std) <= 0:
            raise UserError(f"std is {self.std}: give numbers above 0.")


def named_statistics(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std of the channels of a data set."""
    if name not in STATISTICS:
        raise unknown("mean and std", name, STATISTICS, advice="or give one number per channel.")
    return STATISTICS[name]


def with_statistics(model: Any, mean: Sequence[float], std: Sequence[float]) -> Any:
    """Return the configuration of a model that normalises its inputs with these numbers."""
    if not {"mean", "std"} <= set(getattr(model, "__dataclass_fields__", ())):
        raise UserError(
            f"the network {type(model).__name__} has no fields `mean` and `std`: add them, for its `build` to use."
        )
    return replace(model, mean=tuple(mean), std=tuple(std))


def statistics_of(model: nn.Module) -> tuple[list[float], list[float]] | None:
    """Return mean and std with which a network normalises its inputs; `None` if no layer is known to do so."""
    layer = next((module for module in model.modules() if isinstance(module, Normalize)), None)
    if layer is None:
        return None
    return rounded(layer.mean.flatten().tolist(), layer.std.flatten().tolist())


def rounded(mean: Sequence[float], std: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return mean and std to the digits that float32 keeps."""
    return [round(value, 7) for value in mean], [round(value, 7) for value in std]


class NetworkWrapper(nn.Module):
    """A wrapper around a network, with the same feature layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        layer = getattr(model, "penultimate_layer", "")
        self.penultimate_layer = f"model.{layer}" if layer else ""

    def inner_prefixes(self) -> tuple[str, ...]:
        """Return what precedes the names of the wrapped network's weights, and those of the networks wrapped in it."""
        inner = self.model.inner_prefixes() if isinstance(self.model, NetworkWrapper) else ()
        return ("model.", *(f"model.{prefix}" for prefix in inner))

    def converted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return weights of a file under the names that the wrapped network has for them."""
        return self.model.converted(tensors) if isinstance(self.model, NetworkWrapper) else tensors


class Normalized(NetworkWrapper):
    """A network that normalises images in [0, 1] and passes them to `model`: (x − mean) / std for each channel.

    Mean and std are buffers: they are saved and moved with the weights.

    >>> import torch
    >>> from torch import nn
    >>> model = Normalized(nn.Flatten(), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    >>> model(torch.ones(1, 3, 1, 1))
    tensor([[2., 2., 2.]])

    Args:
        model: takes normalised images (N, channels, height, width).
        mean: one number per channel, of images in [0, 1].
        std: one number per channel, above 0.
    """

    def __init__(self, model: nn.Module, mean: Iterable[float], std: Iterable[float]) -> None:
        super().__init__(model)
        means, stds = [float(value) for value in mean], [float(value) for value in std]
        if len(means) != len(stds) or not means:
            raise UserError(f"there are {len(means)} means and {len(stds)} stds: give one of each per channel.")
        if not all(map(isfinite, means)) or not all(isfinite(value) and value > 0 for value in stds):
            raise UserError(f"mean is {means} and std is {stds}: give finite numbers, and a std above 0.")
        if max(*means, *stds) > 1:
            raise UserError(f"mean is {means} and std is {stds}: images are in [0, 1]; divide the numbers by 255.")
        if any(isinstance(module, Normalize) for module in model.modules()):
            raise UserError("the network normalises its inputs already: omit mean and std (--mean, --std).")
        self.channels = len(means)
        self.normalize = Normalize(means, stds, persistent=True)

    def forward(self, x: Tensor) -> Any:
        """Return the model's output for the normalised images."""
        # Without the check, one channel would broadcast to three. A trace, as made by the fast path, has no shapes.
        if not isinstance(x, fx.Proxy) and (x.ndim < 3 or x.shape[-3] != self.channels):
            raise UserError(
                f"images have shape {tuple(x.shape)}, but mean and std are of {self.channels} channels: make them "
                "agree, as (N, channels, height, width)."
            )
        return self.model(self.normalize(x))


class LogitsOf(NetworkWrapper):
    """A network that returns the `.logits` of the wrapped network's output (see `logits_of`)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        output = self.model(x)
        if not hasattr(output, "logits"):
            raise UserError(
                f"{type(self.model).__name__} returns a {type(output).__name__}, which has no .logits: uiat.logits_of "
                "is for networks that return an object with them, such as those of transformers."
            )
        logits: Tensor = output.logits
        return logits


def logits_of(model: nn.Module) -> LogitsOf:
    """Return a network that returns the logits, for a `model` that returns an object with an attribute `logits`.

    All classifiers of transformers do.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> from torch import nn
    >>> class Classifier(nn.Linear):
    ...     def forward(self, x):
    ...         return SimpleNamespace(logits=super().forward(x))
    >>> logits_of(Classifier(4, 3))(torch.rand(2, 4)).shape
    torch.Size([2, 3])
    """
    return LogitsOf(model)
