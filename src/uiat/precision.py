"""Half precision within the network; losses, KL, BatchNorm's statistics and the weights stay in float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["fp32", "bf16", "fp16"]
"""The precision of convolutions and matrix products within the network, forward and backward."""

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ATTACK_SCALE = 1024.0
"""Factor of an attack's loss in fp16 at first: without it the smallest gradients would be 0 and have no sign."""


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Within it, the network computes in this precision."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, DTYPES[precision])


def full(device: torch.device) -> AbstractContextManager[object]:
    """Within it, the network computes in float32 again: a gradient of a gradient needs it."""
    return torch.autocast(device.type, enabled=False)


def to_float32(values: Tensor) -> Tensor:
    """Return what a network gave in at least float32, before a loss is made of it."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def is_fp16(device: torch.device) -> bool:
    """Whether networks compute in fp16 at this moment."""
    return torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) == torch.float16
