"""A run's configuration: one frozen dataclass that is enough to repeat it."""

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from uiat.added import added
from uiat.attacks import PGD
from uiat.balls import Norm
from uiat.data.config import DataConfig
from uiat.engine.averaging import Averaging
from uiat.engine.awp import AWP
from uiat.engine.schedule import Schedule
from uiat.errors import UserError
from uiat.methods import MethodConfig
from uiat.models import ModelConfig
from uiat.precision import Precision
from uiat.ranges import check_numbers

ModelT = TypeVar("ModelT", bound=ModelConfig)
MethodT = TypeVar("MethodT", bound=MethodConfig)


@dataclass(frozen=True)
class Training:
    """How the weights are found."""

    epochs: int = 100
    """Passes over the training set."""
    batch_size: int = 128
    """m: samples in a step of the optimiser."""
    micro_batch: int | None = None
    """Gradient accumulation: at most so many samples at a time; z is still updated once a full batch."""
    schedule: Schedule = Schedule()
    """The learning rate over the run."""
    momentum: float = 0.9
    """Momentum of SGD; cycled only where the schedule says so."""
    nesterov: bool = added(True)
    """Whether SGD's momentum is Nesterov's."""
    weight_decay: float = 5e-4
    """L2 penalty on the parameters."""
    fresh_head: bool = False
    """With --init: start the last layer anew, such as for another number of classes."""
    decay_norm: bool = True
    """Whether it holds for the parameters of BatchNorm and other normalising layers, too."""
    averaging: Averaging = Averaging()
    """A moving average of the weights, evaluated and saved beside them."""
    awp: AWP = AWP()
    """Adversarial weight perturbation."""
    select: Literal["robust", "natural"] = "robust"
    """Which accuracy on the validation split names the best epoch: under attack, or on natural images."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """When a loss or a gradient is NaN or infinite: save the batch and stop, or leave the batch out and go on (until a
    tenth of an epoch's steps is left out)."""
    fast: bool = True
    """Craft examples through a copy of the network with BatchNorm folded, and keep weights in channels_last memory: the
    same up to rounding, and faster; off: through the network itself."""
    compile: bool = False
    """Use torch.compile for the attack and for the forwards of the loss, never for a gradient of a gradient; the first
    steps take a while. It needs the fast path and a C++ compiler (Triton on GPUs)."""
    precision: Precision = "fp32"
    """Within the network: fp32, bf16, or fp16 with scaled gradients. Losses, statistics and weights stay in fp32."""
    log_every: int = 50
    """Steps between two step lines in metrics.jsonl; 0 writes none."""
    checkpoint_minutes: float = 10.0
    """Minutes between two checkpoints within an epoch; there is always one at the end of each epoch."""


@dataclass(frozen=True)
class Validation:
    """The attack that watches a run on its validation split, and that `uiat evaluate` uses unless told otherwise."""

    eps: float | None = None
    """Radius; `None` is the training attack's ε (8/255 where there is none)."""
    step: float | None = None
    """Length of a step; `None` is ε/4."""
    steps: int = 20
    """Number of steps."""
    norm: Norm | None = None
    """Norm; `None` is the training attack's (L∞ where it has none)."""
    batch_size: int = 256
    """Samples attacked at a time."""

    def attack(self, method: object) -> PGD:
        """Return the attack for a run with this method."""
        trained = getattr(method, "attack", None)
        eps = self.eps if self.eps is not None else getattr(trained, "eps", 8 / 255)
        norm: Norm = self.norm if self.norm is not None else getattr(trained, "norm", "linf")
        return PGD(eps=eps, step=self.step, steps=self.steps, norm=norm)


@dataclass(frozen=True)
class Config(Generic[ModelT, MethodT]):
    """Everything that decides a run's result."""

    data: DataConfig
    """The images."""
    model: ModelT
    """The network."""
    method: MethodT
    """How it is made robust."""
    train: Training = field(default_factory=Training)
    """How the weights are found."""
    validate: Validation = field(default_factory=Validation)
    """The attack that watches the run."""
    seed: int = 0
    """Decides every random draw of the run."""
    init: str = ""
    """Weights to start from: a weights file, a run's folder or an export's; empty: random ones."""


AnyConfig = Config[ModelConfig, MethodConfig]


def check(config: AnyConfig) -> None:
    """Raise a `UserError` that names the first number or choice of a configuration that no run can be made with."""
    check_training(config.train)
    check_numbers(config, norm=getattr(getattr(config.method, "attack", None), "norm", "linf"))


def check_training(train: Training) -> None:
    """Raise a `UserError` that names the first number or choice that no training can be made with."""
    if train.compile and not train.fast:
        raise UserError("train.compile needs the fast path: leave train.fast on, or leave out --compile.")
    check_numbers(train, "train.")
