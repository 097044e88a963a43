"""The configuration of a run: one frozen dataclass."""

from dataclasses import dataclass, field
from math import cos, inf, pi
from typing import Generic, Literal, TypeVar

from uiat.attacks import PGD, norm_of
from uiat.balls import Norm
from uiat.data.data_config import DataConfig
from uiat.fields import (
    COUNT,
    FROM_ZERO,
    RADIUS,
    SHARE,
    STEP_COUNT,
    WEIGHT,
    Range,
    check_numbers,
    check_radius,
    optional_in_key,
    require,
    require_that,
)
from uiat.methods import MethodConfig, check_method
from uiat.models import ModelConfig
from uiat.precision import Precision
from uiat.types import Clock

OptimizerName = Literal["sgd", "adamw"]
ModelT = TypeVar("ModelT", bound=ModelConfig)
MethodT = TypeVar("MethodT", bound=MethodConfig)


@dataclass(frozen=True)
class Schedule:
    """The learning rate over a run."""

    name: Literal["onecycle", "piecewise", "triangular", "constant"] = "onecycle"
    """`onecycle`: cosine up to the maximum and down to almost nothing; `piecewise`: drops at the milestones;
    `triangular`: straight up and straight down to zero; `constant`: always the maximum."""
    lr: float = 0.1
    """The maximum learning rate (the first one, if piecewise)."""
    warmup: float = 0.25
    """Position of the maximum of the learning rate, as a fraction of the run (onecycle, triangular)."""
    milestones: tuple[float, ...] = (0.5, 0.75)
    """Positions at which the learning rate drops, as fractions of the run (piecewise)."""
    factor: float = 0.1
    """Factor of the learning rate at each milestone (piecewise)."""
    low_momentum: float | None = optional_in_key(None)
    """Momentum at the maximum of the learning rate; at the minimum it is `momentum`, in between it follows the rate.
    The defaults of torch's `OneCycleLR` are 0.85 with `momentum` 0.95. `None`: not cycled."""

    def __post_init__(self) -> None:
        require(self, lr=WEIGHT, warmup=SHARE, milestones=SHARE, factor=SHARE, low_momentum=SHARE)

    def at(self, step: int, steps: int) -> float:
        """Return the learning rate of `step`, counted from 0, in a run of `steps`."""
        if self.name == "constant":
            return self.lr
        if self.name == "piecewise":
            return float(self.lr * self.factor ** sum(step >= m * steps for m in self.milestones))
        if self.name == "triangular":
            top = self.warmup * steps
            return self.lr * (step / top if step < top else (steps - step) / (steps - top))
        return self._one_cycle(step, steps, self.lr / 25, self.lr, self.lr / 25e4)

    def momentum_at(self, step: int, steps: int, momentum: float) -> float:
        """Return the optimiser's momentum at `step`: `momentum` at the lowest rate, `low_momentum` at the largest."""
        if self.low_momentum is None or not self.lr:
            return momentum
        if self.name == "onecycle":
            return self._one_cycle(step, steps, momentum, self.low_momentum, momentum)
        return momentum + (self.low_momentum - momentum) * self.at(step, steps) / self.lr

    def _one_cycle(self, step: int, steps: int, first: float, peak: float, last: float) -> float:
        """Smith and Topin's one cycle as in torch, by cosine: `first`, `peak` at the end of the warm-up, `last`."""
        top, end = self.warmup * steps - 1, steps - 1
        if step <= top:
            return _cosine(first, peak, step / top if top > 0 else 1.0)
        return _cosine(peak, last, (step - top) / (end - top) if end > top else 1.0)


def _cosine(start: float, end: float, fraction: float) -> float:
    return end + (start - end) / 2 * (1 + cos(pi * fraction))


@dataclass(frozen=True)
class Averaging:
    """θ' ← τ'·θ' + (1 − τ')·θ after every step, with τ' = min(τ, (1 + t)/(10 + t)) in the t-th, from 0."""

    enabled: bool = False
    """Whether to average the weights; the averaged network is then selected, evaluated and exported."""
    decay: float = 0.995
    """τ: decay of the average; it is smaller during the warm-up."""

    def __post_init__(self) -> None:
        require(self, decay=SHARE)


@dataclass(frozen=True)
class AWP:
    """Gradients at w + γ·‖w‖·g/‖g‖ for each layer, where g is the gradient of the loss at w."""

    enabled: bool = False
    """Whether to perturb the weights adversarially; available with every method."""
    gamma: float | None = None
    """γ: the size of the weight perturbation, relative to each layer's weights; `None` is 0.005 for methods with a
    target p (TRADES, UIAT …) and 0.01 for those without (SAT …)."""
    warmup: int = 0
    """Epochs at the beginning without weight perturbation."""

    def __post_init__(self) -> None:
        require(self, gamma=SHARE, warmup=FROM_ZERO)

    def acts(self, clock: Clock) -> bool:
        """Whether weights are perturbed at this time of the run."""
        return self.enabled and clock.epoch > self.warmup


@dataclass(frozen=True)
class Training:
    """Training options."""

    epochs: int = 100
    """Passes over the training set."""
    batch_size: int = 128
    """m: samples in an optimiser step."""
    micro_batch: int | None = None
    """Gradient accumulation: maximum samples at a time; z is still updated once per full batch."""
    schedule: Schedule = Schedule()
    """The learning rate over the run."""
    optimizer: OptimizerName = optional_in_key("sgd")
    """The optimiser, SGD or AdamW; fine-tuning a transformer usually needs AdamW, with a smaller learning rate."""
    momentum: float = 0.9
    """Momentum of SGD, β₁ of AdamW; the schedule may cycle it."""
    nesterov: bool = optional_in_key(True)
    """Whether SGD's momentum is Nesterov's."""
    weight_decay: float = 5e-4
    """L2 penalty on the parameters; AdamW's is decoupled from the gradient."""
    fresh_head: bool = False
    """With --init: initialise the last layer from scratch, for example for another number of classes."""
    decay_norm: bool = True
    """Whether weight decay also applies to the parameters of BatchNorm and other normalisation layers."""
    averaging: Averaging = Averaging()
    """A moving average of the weights, evaluated and saved with them."""
    awp: AWP = AWP()
    """Adversarial weight perturbation."""
    select: Literal["robust", "natural"] = "robust"
    """Validation accuracy that selects the best epoch: robust or natural."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """If a loss or a gradient is NaN or infinite: save the batch and stop, or skip the batch and continue (until a
    tenth of an epoch's steps is skipped)."""
    fast: bool = True
    """Craft examples with a copy of the network with BatchNorm folded, which is faster and equal up to rounding."""
    channels_last: bool | None = optional_in_key(None)
    """Keep the weights of convolutions in channels_last memory if the network can run in it; `None`: as `fast`."""
    compile: bool = False
    """Use torch.compile for the attack and for the forwards of the loss, but not for a double backward; the first
    steps take longer. It needs the fast path and a C++ compiler (Triton on GPUs)."""
    precision: Precision = "fp32"
    """Precision within the network: fp32, bf16, or fp16 with a gradient scaler; losses and weights stay in fp32."""
    log_every: int = 50
    """Steps between two step lines in metrics.jsonl; 0: none."""
    checkpoint_minutes: float = 10.0
    """Minutes between two checkpoints within an epoch; one is always saved at the end of an epoch."""

    def __post_init__(self) -> None:
        require(
            self,
            epochs=COUNT,
            batch_size=COUNT,
            micro_batch=COUNT,
            momentum=SHARE,
            weight_decay=SHARE,
            log_every=FROM_ZERO,
            checkpoint_minutes=WEIGHT,
        )
        problem = "needs the fast path: keep train.fast on, or omit --compile."
        require_that(self, self.fast or not self.compile, "compile", problem)

    @property
    def in_channels_last(self) -> bool:
        """Whether convolutions are kept in channels_last memory."""
        return self.fast if self.channels_last is None else self.channels_last


@dataclass(frozen=True)
class Validation:
    """The attack of the validation after each epoch, and the default of `uiat evaluate`."""

    eps: float | None = None
    """Radius of the validation attack; `None` is the training attack's ε (8/255 without one)."""
    step: float | None = None
    """Step size of the validation attack; `None` is ε/4."""
    steps: int = 20
    """Number of steps of the validation attack."""
    norm: Norm | None = None
    """Norm of the validation attack; `None` is the training attack's (L∞ without one)."""
    batch_size: int = 256
    """Samples attacked at a time in validation."""

    def __post_init__(self) -> None:
        require(self, eps=RADIUS, step=WEIGHT, steps=STEP_COUNT, batch_size=COUNT)

    def attack(self, method: MethodConfig) -> PGD:
        """Return the attack for a run with this method."""
        trained_eps = method.attack.eps if method.attack is not None else 8 / 255
        eps = self.eps if self.eps is not None else trained_eps
        norm = self.norm if self.norm is not None else norm_of(method.attack)
        return PGD(eps=eps, step=self.step, steps=self.steps, norm=norm)


@dataclass(frozen=True)
class Config(Generic[ModelT, MethodT]):
    """All settings that determine a run's result."""

    data: DataConfig
    """The images."""
    model: ModelT
    """The network."""
    method: MethodT
    """The training method."""
    train: Training = field(default_factory=Training)
    """Training options."""
    validate: Validation = field(default_factory=Validation)
    """The validation attack."""
    seed: int = 0
    """Seed of all random draws of the run."""
    init: str = ""
    """Weights to start from: a weights file, a run's folder or an export's; empty: random weights."""

    def __post_init__(self) -> None:
        require(self, seed=Range(-inf, inf, whole=True))


AnyConfig = Config[ModelConfig, MethodConfig]


def check(config: AnyConfig) -> None:
    """Raise a `UserError` for the first invalid number or choice of a configuration."""
    check_method(type(config.method).__name__, config.method)
    check_numbers(config)
    check_radius("validate.eps", config.validate.eps, config.validate.norm or norm_of(config.method.attack))
