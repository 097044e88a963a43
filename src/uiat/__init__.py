"""Adversarial training with inverse adversaries: IAT, UIAT, one-off UIAT, and what they are compared with.

The plug-in use, in anyone's own loop:

    method = UIAT(lam=3.5).build(DataSpec(num_classes=10, num_samples=50_000, shape=(3, 32, 32)))
    loss = method(model, Batch(x, y, index), Clock(epoch, step, epochs)).total
"""

from importlib import import_module
from typing import TYPE_CHECKING

from uiat.errors import UserError

if TYPE_CHECKING:
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
else:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for: the command line starts without waiting for torch."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "uiat.types" if name in ("Batch", "Clock", "DataSpec", "Loss") else "uiat.methods"
        return getattr(import_module(module), name)


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
