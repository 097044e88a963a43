"""Adversarial training with inverse adversaries: IAT, UIAT, one-off UIAT, and what they are compared with.

The plug-in use, in anyone's own loop:

    method = UIAT(lam=3.5).build(DataSpec(num_classes=10, num_samples=50_000, shape=(3, 32, 32)))
    loss = method(model, Batch(x, y, index), Clock(epoch, step, epochs)).total
"""

from uiat.errors import UserError
from uiat.methods import (
    HAT,
    IAT,
    MART,
    METHODS,
    SAT,
    TRADES,
    UIAT,
    GradAlign,
    Natural,
    SingleStep,
    UIATOneOff,
)
from uiat.types import Batch, Clock, DataSpec, Loss

__version__ = "0.1.0"

__all__ = [
    "HAT",
    "IAT",
    "MART",
    "METHODS",
    "SAT",
    "TRADES",
    "UIAT",
    "Batch",
    "Clock",
    "DataSpec",
    "GradAlign",
    "Loss",
    "Natural",
    "SingleStep",
    "UIATOneOff",
    "UserError",
    "__version__",
]
