"""The network, data dimensions, batch and training options that the methods of a benchmark share."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from uiat.config import AnyConfig, Config, Training
from uiat.data.data_config import DataConfig
from uiat.engine.setup import build_model, build_state
from uiat.engine.state import State
from uiat.engine.step import train_step
from uiat.errors import UserError
from uiat.methods import MethodConfig
from uiat.models import ModelConfig
from uiat.rng import generator
from uiat.types import Batch, Clock, DataSpec

LR = 0.01
"""Learning rate of the timed steps."""


@dataclass(frozen=True)
class BenchSetting:
    """What all methods of a benchmark run on."""

    model: ModelConfig
    spec: DataSpec
    batch_size: int
    device: torch.device
    train: Training = Training()

    def config(self, method: MethodConfig) -> AnyConfig:
        """Return the configuration of a run with this method."""
        return Config(DataConfig(), self.model, method, replace(self.train, batch_size=self.batch_size))

    def batch(self, seed: int = 0) -> Batch:
        """Return a batch of noise: a step costs the same as with images."""
        key, n, spec = generator(seed, "bench"), self.batch_size, self.spec
        x = torch.rand((n, *spec.shape), generator=key)
        y = torch.randint(spec.num_classes, (n,), generator=key)
        index = torch.randperm(spec.num_samples, generator=key)[:n]
        return Batch(x.to(self.device), y.to(self.device), index.to(self.device))

    def build_helper(self, method: MethodConfig) -> nn.Module | None:
        """Return an untrained helper if the method needs one."""
        if not method.needs_helper:
            return None
        return build_model(self.config(method), self.spec, self.device).requires_grad_(False)

    def build_state(self, method: MethodConfig, helper: nn.Module | None = None) -> State:
        """Return the state of a run with this method before its first step."""
        return build_state(self.config(method), self.spec, self.device, helper)

    def make_step(self, name: str, state: State, clock: Clock) -> Callable[[], None]:
        """Return a function that makes one training step, always on the same batch and at the same time of the run."""
        batch, train = self.batch(), self.train

        def step() -> None:
            fault = train_step(state, batch, clock, lr=LR, micro_batch=train.micro_batch, awp=train.awp)
            if fault is not None:
                raise UserError(
                    f"{fault.what} is not finite in a step of {name}, which therefore updated no weights and cannot "
                    "be timed: choose another precision or network."
                )

        return step
