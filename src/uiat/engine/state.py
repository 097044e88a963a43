"""Everything of a run that changes: what a checkpoint must hold for the run to go on in the same bits."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from uiat.distributed import all_reduce_sum, average, is_main, world
from uiat.engine.averaging import Average
from uiat.engine.overfitting import Overfitting
from uiat.engine.pass_counter import PassCounter
from uiat.methods.method import LossOf, Method
from uiat.models.fast import AcceleratedModel
from uiat.precision import Precision, autocast
from uiat.typed import check_fields, check_record
from uiat.types import Clock, Loss, View


class Meter:
    """Sums of loss, terms and right answers over the samples of an epoch; adding to them never waits for the device."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.samples = 0

    def add(self, loss: Loss, correct: Tensor, samples: int) -> None:
        """Count one micro-batch: its mean loss and terms, and how many of its x̂ were classified right."""
        values = {"loss": loss.total.detach() * samples, "train_accuracy": correct if samples else correct * 0}
        values |= {f"loss_{name}": part * samples for name, part in loss.parts.items()}
        for name, value in values.items():
            before = self.sums.get(name)
            self.sums[name] = value.double() if before is None else before.to(value.device) + value.double()
        self.samples += samples

    def means(self) -> dict[str, float]:
        """Return the means so far, over all processes."""
        sums, samples = self._everywhere()
        return {name: float(total) / max(1, samples) for name, total in sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return all there is to go on from, of all processes."""
        sums, samples = self._everywhere()
        return {"sums": sums, "samples": samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; the main process holds what all had counted."""
        self.sums, self.samples = dict(state["sums"]), int(state["samples"])
        if any(value.shape != () or value.dtype != torch.float64 for value in self.sums.values()):
            raise ValueError("the means are not numbers")
        if not is_main():
            self.sums, self.samples = {name: value * 0 for name, value in self.sums.items()}, 0

    def _everywhere(self) -> tuple[dict[str, Tensor], int]:
        if not self.sums:
            return {}, 0
        device = next(iter(self.sums.values())).device
        both = all_reduce_sum(torch.stack([*self.sums.values(), torch.tensor(float(self.samples)).double().to(device)]))
        return dict(zip(self.sums, both[:-1], strict=True)), int(both[-1])


class Parallel:
    """The loss of one process's share, with gradients averaged over processes in its backward."""

    def __init__(self, model: nn.Module, method: Method):
        self.model = model
        self.loss: Callable[[View, Clock], Loss] = method.loss
        self._wrapped: DistributedDataParallel | None = None
        if world() > 1:
            self._wrapped = _without_buffers(LossOf(model, method))
            self.loss = self._wrapped

    def no_sync(self, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients only in the last micro-batch's backward."""
        return nullcontext() if last or self._wrapped is None else self._wrapped.no_sync()

    def close(self) -> None:
        """Let go of what DistributedDataParallel holds of the process group, lest it be the group's last owner.

        The last owner waits for gloo's threads; a reducer does so with Python's lock held, for which one of them may
        wait (pytorch#56297).
        """
        if self._wrapped is not None:
            for name in ("reducer", "logger"):
                vars(self._wrapped).pop(name, None)

    def average_buffers(self) -> None:
        """Average BatchNorm's running statistics: then all processes are equal again, at every step.

        A checkpoint made at any moment therefore belongs to no process, and examples are crafted against one network.
        """
        average(list(self.model.buffers()))


def _without_buffers(module: nn.Module) -> DistributedDataParallel:
    """Wrap a module for several processes; its forward does not broadcast buffers, since `average_buffers` does more.

    torch 2.13 has renamed the argument, and warns of the old name. Under the old name, buffers are not broadcast at the
    start either: there they are equal already, made from one seed or read from one checkpoint.
    """
    renamed = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    options: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    return DistributedDataParallel(module, **options)


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
    fast: AcceleratedModel | None = None
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

    def autocast(self) -> AbstractContextManager[object]:
        """Within it, the network computes in the run's precision."""
        return autocast(self.device, self.precision)

    def state_dict(self) -> dict[str, Any]:
        """Return all but the method's state, which may be large and is saved by itself."""
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

    def _load_optimizer(self, saved: dict[str, Any]) -> None:
        """Load what the optimizer has gathered, and the rate and momentum of its last step; the rest is configured."""
        moving = ("params", "lr", "momentum")
        options = [{k: v for k, v in group.items() if k not in moving} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(saved)
        for group, own in zip(self.optimizer.param_groups, options, strict=True):
            check_record(group, {"lr": float, "momentum": float})
            group.update(own)
        for parameter, gathered in self.optimizer.state.items():
            buffer = gathered.get("momentum_buffer")
            if buffer is not None and (buffer.shape != parameter.shape or buffer.dtype != parameter.dtype):
                raise ValueError("the momentum is another network's")

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.model.load_state_dict(saved["model"])
        self._load_optimizer(saved["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(saved["average"])
        self.passes.load(saved["passes"])
        self.epoch, self.step, self.best = saved["epoch"], saved["step"], saved["best"]
        self.meter.load_state_dict(saved["meter"])
        if saved.get("scaler"):
            self.scaler.load_state_dict(saved["scaler"])
        self.skipped, self.overfitting = saved.get("skipped", 0), Overfitting(**saved.get("overfitting", {}))
        check_fields(self.overfitting)
        self.overflows, self.seconds = saved.get("overflows", 0), saved["seconds"]
        torch.set_rng_state(saved["rng"])
        if self.device.type == "cuda" and saved["rng_cuda"]:
            torch.cuda.set_rng_state(saved["rng_cuda"][0], self.device)
