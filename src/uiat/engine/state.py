"""The state of a run: everything that a checkpoint needs for a bit-exact resume."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from uiat.averaging import AveragedWeights
from uiat.distributed import all_reduce_sum, average, is_main, world
from uiat.engine.overfitting import Overfitting
from uiat.engine.pass_counter import PassCounter
from uiat.methods.method import LossOf, Method
from uiat.models.fast import AcceleratedModel
from uiat.precision import Precision, autocast
from uiat.typed import check_fields, check_record
from uiat.types import Clock, Loss, View


class Meter:
    """Running sums of loss, terms and correct predictions over an epoch; adding to them does not synchronise."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.samples = 0

    def add(self, loss: Loss, correct: Tensor, samples: int) -> None:
        """Add a micro-batch: its mean loss and terms, and its number of correctly classified x̂."""
        values = {"loss": loss.total.detach() * samples, "train_accuracy": correct if samples else correct * 0}
        values |= {f"loss_{name}": part * samples for name, part in loss.parts.items()}
        for name, value in values.items():
            before = self.sums.get(name)
            self.sums[name] = value.double() if before is None else before.to(value.device) + value.double()
        self.samples += samples

    def means(self) -> dict[str, float]:
        """Return the current means over all processes."""
        sums, samples = self._everywhere()
        return {name: float(total) / max(1, samples) for name, total in sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from, of all processes."""
        sums, samples = self._everywhere()
        return {"sums": sums, "samples": samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state; the main process takes over the sums of all processes."""
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
    """The loss of a process's share of the batch; gradients are averaged over processes in the backward."""

    def __init__(self, model: nn.Module, method: Method):
        self.model = model
        self.loss: Callable[[View, Clock], Loss] = method.loss
        self._wrapped: DistributedDataParallel | None = None
        if world() > 1:
            self._wrapped = _without_buffers(LossOf(model, method))
            self.loss = self._wrapped

    def no_sync(self, last: bool) -> AbstractContextManager[None]:
        """Return a context in which gradients are exchanged only in the backward of the last micro-batch."""
        return nullcontext() if last or self._wrapped is None else self._wrapped.no_sync()

    def close(self) -> None:
        """Release the process group from DistributedDataParallel, which must not be its last owner.

        The last owner waits for gloo's threads; a reducer would do so while holding the GIL, for which one of them may
        be waiting (pytorch#56297).
        """
        if self._wrapped is not None:
            for name in ("reducer", "logger"):
                vars(self._wrapped).pop(name, None)

    def average_buffers(self) -> None:
        """Average BatchNorm's running statistics over processes, so that all have the same network after every step."""
        average(list(self.model.buffers()))


def _without_buffers(module: nn.Module) -> DistributedDataParallel:
    """Wrap a module for several processes; its forward does not broadcast buffers, because `average_buffers` is used.

    torch 2.13 renamed the argument and warns about the old name. With the old name, buffers are not broadcast at the
    start either; they are equal then, from the same seed or checkpoint.
    """
    renamed = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    options: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    return DistributedDataParallel(module, **options)


@dataclass
class State:
    """Network, method, optimiser and progress of a run."""

    model: nn.Module
    method: Method
    optimizer: torch.optim.Optimizer
    passes: PassCounter
    average: AveragedWeights | None = None
    """The averaged weights, if enabled."""
    parallel: Parallel = field(init=False)
    """The loss, on one process or on several."""
    precision: Precision = "fp32"
    fast: AcceleratedModel | None = None
    """The network with faster networks for its attacks; `None`: attacks run through the network itself."""
    scaler: torch.amp.GradScaler = field(init=False)
    """Scales the loss in fp16, where small gradients would underflow; disabled otherwise."""
    epoch: int = 1
    """The current epoch, from 1."""
    step: int = 0
    """The next step of that epoch, from 0."""
    meter: Meter = field(default_factory=Meter)
    best: dict[str, float] = field(default_factory=dict)
    """The best epoch so far: its number and its validation accuracies."""
    skipped: int = 0
    """Skipped steps of the current epoch."""
    overflows: int = 0
    """Consecutive steps skipped by the gradient scaler (fp16)."""
    overfitting: Overfitting = field(default_factory=Overfitting)
    seconds: float = 0.0
    """Duration of the run up to its last checkpoint."""

    def __post_init__(self) -> None:
        self.parallel = Parallel(self.model, self.method)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.model.parameters()).device

    @property
    def network(self) -> nn.Module:
        """The network that is passed to the method."""
        return self.model if self.fast is None else self.fast

    @property
    def attacks_unfolded(self) -> bool:
        """Whether attacks use running statistics, but there is no folded copy for them."""
        crafts = self.method.attack is not None and self.method.crafting == "eval"
        return crafts and (self.fast is None or not self.fast.folds)

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context in which the network computes in the run's precision."""
        return autocast(self.device, self.precision)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the method's state, which may be large and is saved separately."""
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
        """Load the optimiser's buffers and its last learning rate and momentum; other options are configured."""
        moving = ("params", "lr", "momentum", "betas")
        options = [{k: v for k, v in group.items() if k not in moving} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(saved)
        for group, own in zip(self.optimizer.param_groups, options, strict=True):
            check_record(group, {"lr": float, "momentum": float, "betas": tuple[float, float]})
            group.update(own)
        for parameter, gathered in self.optimizer.state.items():
            for name, buffer in gathered.items():
                if name == "step":  # on the CPU, as torch creates it: on a GPU, every step would wait for it
                    gathered[name] = buffer.cpu().reshape(())
                elif buffer is not None and (buffer.shape != parameter.shape or buffer.dtype != parameter.dtype):
                    raise ValueError("the buffers of the optimiser do not match the network")

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Resume from a saved state."""
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
