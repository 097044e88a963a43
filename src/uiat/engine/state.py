"""Everything of a run that changes: what a checkpoint must hold for the run to go on in the same bits."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from uiat.engine.averaging import Average
from uiat.engine.meter import Meter
from uiat.engine.overfitting import Overfitting
from uiat.engine.parallel import Parallel
from uiat.engine.passes import PassCounter
from uiat.methods import Method
from uiat.models.fast import FastModel
from uiat.precision import Precision, lowered


@dataclass
class State:
    """The moving parts of a run, and the place it is at."""

    model: nn.Module
    method: Method
    optimizer: torch.optim.Optimizer
    passes: PassCounter
    average: Average | None = None
    """The averaged weights, if the run keeps any."""
    parallel: Parallel = field(init=False)
    """The loss, on one process or on several."""
    precision: Precision = "fp32"
    fast: FastModel | None = None
    """The network with what makes its attacks faster; `None`: attacks run through the network itself."""
    scaler: torch.amp.GradScaler = field(init=False)
    """Scales the loss in fp16, whose small gradients would be lost; else it does nothing."""
    epoch: int = 1
    """The epoch at hand, from 1."""
    step: int = 0
    """The next step of that epoch, from 0."""
    meter: Meter = field(default_factory=Meter)
    best: dict[str, float] = field(default_factory=dict)
    """The best epoch so far: its number and its validation accuracies."""
    skipped: int = 0
    """Steps of the epoch at hand that were left out."""
    overflows: int = 0
    """Steps in a row that fp16's scaler has left out."""
    overfitting: Overfitting = field(default_factory=Overfitting)
    seconds: float = 0.0
    """Time spent on the run up to its last checkpoint."""

    def __post_init__(self) -> None:
        self.parallel = Parallel(self.model, self.method)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.model.parameters()).device

    @property
    def network(self) -> nn.Module:
        """What is given to the method as its model."""
        return self.model if self.fast is None else self.fast

    @property
    def attacks_unfolded(self) -> bool:
        """Whether there are attacks with running statistics, and no folded copy for them to run through."""
        crafts = self.method.attack is not None and self.method.crafting == "eval"
        return crafts and (self.fast is None or not self.fast.folds)

    def lowered(self) -> AbstractContextManager[object]:
        """Within it, the network computes in the run's precision."""
        return lowered(self.device, self.precision)

    def state_dict(self) -> dict[str, Any]:
        """Return all but the method's state, which may be large and is saved on its own terms."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict() if self.average is not None else None,
            "passes": self.passes.everywhere(),
            "epoch": self.epoch,
            "step": self.step,
            "meter": self.meter.state_dict(),
            "scaler": self.scaler.state_dict(),
            "best": dict(self.best),
            "skipped": self.skipped,
            "overflows": self.overflows,
            "overfitting": self.overfitting.state_dict(),
            "seconds": self.seconds,
            "rng": torch.get_rng_state(),
            "rng_cuda": [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else [],
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(saved["average"])
        self.passes.load(saved["passes"])
        self.epoch, self.step, self.best = saved["epoch"], saved["step"], saved["best"]
        self.meter.load_state_dict(saved["meter"])
        if saved.get("scaler"):
            self.scaler.load_state_dict(saved["scaler"])
        self.skipped, self.overfitting = saved.get("skipped", 0), Overfitting(**saved.get("overfitting", {}))
        self.overflows, self.seconds = saved.get("overflows", 0), saved["seconds"]
        torch.set_rng_state(saved["rng"])
        if self.device.type == "cuda" and saved["rng_cuda"]:
            torch.cuda.set_rng_state(saved["rng_cuda"][0], self.device)
