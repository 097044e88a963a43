"""Normalisation of images inside a network: its options, and what a network does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

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
