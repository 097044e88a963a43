"""Half precision (autocast) within the network; losses, BatchNorm's statistics and the weights stay in float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["fp32", "bf16", "fp16"]
"""The precision of convolutions and matrix products within the network, forward and backward."""

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ATTACK_SCALE = 1024.0
"""Initial loss scale of attacks in fp16: without it small gradients would underflow to 0 and have no sign."""


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return a context in which the network computes in this precision."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, DTYPES[precision])


def full(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which the network computes in float32, as a double backward requires."""
    return torch.autocast(device.type, enabled=False)


def to_float32(values: Tensor) -> Tensor:
    """Return a network's output in at least float32, to compute a loss from."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def is_fp16(device: torch.device) -> bool:
    """Whether autocast to fp16 is active."""
    return torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) == torch.float16
