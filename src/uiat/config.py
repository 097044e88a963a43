"""The configuration of a run: one frozen dataclass, and its JSON."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from math import cos, inf, pi
from typing import Any, Generic, Literal, TypeVar

from uiat.attacks import ATTACKS, PGD, Attack, norm_of
from uiat.balls import Norm
from uiat.data.data_config import DataConfig
from uiat.errors import UserError, unknown
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
    in_key,
    optional_in_key,
    require,
    unchecked,
)
from uiat.methods import METHODS, Method, MethodConfig, UIATPlugIn, check_method
from uiat.models import MODELS, Imported, InMemory, ModelConfig, check_options
from uiat.precision import Precision
from uiat.targets import InstanceInverse, UniversalInverse
from uiat.typed import check_fields, fits, show_value
from uiat.types import Clock, DataSpec

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
    check_training(config.train)
    check_method(type(config.method).__name__, config.method)
    check_numbers(config)
    check_radius("validate.eps", config.validate.eps, config.validate.norm or norm_of(config.method.attack))


def check_training(train: Training) -> None:
    """Raise a `UserError` for the first invalid number or choice of the training options."""
    if train.compile and not train.fast:
        raise UserError("train.compile needs the fast path: keep train.fast on, or omit --compile.")
    check_numbers(train, "train.")


CONFIG_SCHEMA = 1
"""Version of saved configurations."""


IMPORTS = "imports"
"""The key of a run's imported modules, next to its configuration."""
RUN_ID = "run_id"
"""The key of the id that a run's checkpoints share, next to its configuration."""


@dataclass(frozen=True)
class UnknownPart:
    """A part of a saved method, such as its attack, whose class is not registered: its values can be read."""

    saved: dict[str, Any]
    """The content of the file."""
    values: dict[str, Any]
    """Its decoded fields."""

    @property
    def eps(self) -> float:
        """ε of an attack; 8/255 if it has none."""
        eps = self.values.get("eps")
        return eps if fits(eps, float) else 8 / 255  # type: ignore[return-value]

    @property
    def radius(self) -> float:
        """Maximum distance of the result from x; as its class is not known, ε."""
        return self.eps

    @property
    def norm(self) -> Norm:
        """The norm of an attack's ball; L∞ if it has none."""
        return "l2" if self.values.get("norm") == "l2" else "linf"

    def __call__(self, model: object, x: object, y: object, draws: object = None) -> Any:
        """Raise a `UserError`: an unknown attack cannot be run."""
        raise self.refusal("attack")

    def refusal(self, part: str) -> UserError:
        """Return the error for using it."""
        return UserError(
            f"the {part} {self.saved['kind']!r} is not known here: name the module that registers it with --import."
        )


class UnknownMethod(UnknownPart, MethodConfig):
    """A saved method whose class is not registered: it can be shown and saved, but not built."""

    @property
    def attack(self) -> Attack | None:  # type: ignore[override]  # read-only
        """The attack; its class may be unknown, too."""
        attack = self.values.get("attack")
        return attack if fits(attack, Attack) else None

    @property
    def inverse(self) -> InstanceInverse | UniversalInverse | None:  # type: ignore[override]
        """The inverse attack of the method or of its plug-in."""
        plug_in = self.values.get("uiat")
        if isinstance(plug_in, UIATPlugIn) and plug_in.enabled:
            return plug_in.inverse
        inverse = self.values.get("inverse")
        return inverse if isinstance(inverse, InstanceInverse | UniversalInverse) else None

    def build(self, data: DataSpec, *, seed: int = 0, helper: object = None) -> Method:
        """Raise a `UserError`: an unknown method cannot be built."""
        raise self.refusal("method")


def to_json(config: AnyConfig, *, key: bool = False) -> dict[str, Any]:
    """Return a configuration as plain JSON values, with a schema version; `key` as in `encode`."""
    return {"schema": CONFIG_SCHEMA, **encode(config, key=key)}


def from_json(saved: dict[str, Any]) -> AnyConfig:
    """Return the configuration from its JSON; only registered classes are instantiated.

    A method of an unknown kind becomes an `UnknownMethod`: its network can be evaluated without it.
    """
    if not isinstance(saved, dict) or "schema" not in saved:
        raise UserError(f"the file does not hold a run's configuration: it is not of schema {CONFIG_SCHEMA}.")
    if saved["schema"] != CONFIG_SCHEMA:
        raise UserError(
            f"the configuration is not of schema {CONFIG_SCHEMA}: it was written by another version of uiat."
        )
    with unchecked():
        config = _decode({k: v for k, v in saved.items() if k not in ("schema", IMPORTS, RUN_ID)}, _kinds())
    if not isinstance(config, Config):
        raise UserError("the file does not hold a run's configuration.")
    if type(config.model) not in (Imported, InMemory, *map(type, MODELS.values())):
        raise UserError(f"{type(config.model).__name__} is not a network.")
    check_options(config.model)
    check_numbers(config)
    return config


def model_from_json(saved: dict[str, Any]) -> ModelConfig:
    """Return a network from its JSON; only those of `MODELS`, and `Imported`, are known."""
    networks = [*MODELS.values(), Imported()]
    if saved.get("kind") not in {type(network).__name__ for network in networks}:
        raise UserError(
            f"the network {str(saved.get('kind'))[:100]!r} is not known here: import the module that registers it "
            "(--import on the command line)."
        )
    model: ModelConfig = _decode(saved, {part.__name__: part for part in _parts(networks)})
    check_options(model)
    return model


def encode(value: Any, *, key: bool = False) -> Any:
    """Return dataclasses as dictionaries with their `kind`, tuples as lists, and all else unchanged.

    With `key`, return what identifies a result: without fields that were added later and have their defaults, and with
    fields that were removed later.
    """
    if isinstance(value, UnknownPart):
        return value.saved
    if is_dataclass(value) and not isinstance(value, type):
        kept = [f for f in fields(value) if not key or in_key(value, f)]
        removed = _removed_in_key(value) if key else {}
        values = {f.name: encode(getattr(value, f.name), key=key) for f in kept}
        return {"kind": type(value).__name__, **values, **removed}
    return [encode(v, key=key) for v in value] if isinstance(value, tuple | list) else value


def _decode(value: Any, kinds: dict[str, type], unknown_as: type[UnknownPart] | None = None) -> Any:
    """Return the configuration of a saved value; one of an unknown kind becomes an `unknown_as`."""
    if isinstance(value, list):
        return tuple(_decode(v, kinds, unknown_as) for v in value)  # configurations are frozen
    if not isinstance(value, dict):
        return value
    kind = value.get("kind")
    if not isinstance(kind, str):
        raise UserError(f"a part of the configuration has the kind {show_value(kind)}, which is not a name.")
    within = None if unknown_as is None else UnknownPart
    if kind not in kinds and unknown_as is not None:
        return unknown_as(value, {name: _decode(v, kinds, within) for name, v in value.items() if name != "kind"})
    if kind not in kinds:
        hint = "A custom part needs --import with the module that registers it."
        raise UserError(f"{unknown('kind of configuration', kind[:100], kinds)} {hint}")
    cls = kinds[kind]
    known = {f.name for f in fields(cls)}
    extra = sorted(value.keys() - known - {"kind"})
    if extra:
        raise UserError(
            f"the configuration of {kind} has a field {extra[0]!r} that this version of uiat does not know."
        )
    values = {
        name: _decode(v, kinds, UnknownMethod if cls is Config and name == "method" else within)
        for name, v in value.items()
        if name != "kind"
    }
    try:
        part = cls(**values)
    except TypeError as error:  # a field without a default is missing
        raise UserError(f"the configuration of {kind} is incomplete ({error}).") from None
    check_fields(part, {PGD: tuple(map(type, ATTACKS.values()))})  # SAT(attack=Custom()) is valid, too
    return part


def _removed_in_key(part: Any) -> dict[str, Any]:
    """Return `cutmix_with`, a removed field that keys of results still have: the source of CutMix's windows."""
    return {"cutmix_with": "class" if part.cutmix else "any"} if isinstance(part, DataConfig) else {}


def _kinds() -> dict[str, type]:
    """Collect the dataclasses of every registered part, at each call: custom parts may be registered at any time."""
    registered = [*ATTACKS.values(), *METHODS.values(), *MODELS.values()]
    roots: list[Any] = [DataConfig(), Training(), Validation(), Imported(), InMemory(), *registered]
    return {"Config": Config, **{cls.__name__: cls for cls in _parts(roots)}}


def _parts(values: Iterable[Any]) -> Iterable[type]:
    for value in values:
        if is_dataclass(value) and not isinstance(value, type):
            yield type(value)
            yield from _parts(getattr(value, f.name) for f in fields(value))
