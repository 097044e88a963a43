"""The scales: which runs replace the paper's (data, networks, epochs), and what is measured on them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from uiat import methods, recipes
from uiat.config import AnyConfig, Schedule
from uiat.data.config import Generated
from uiat.errors import unknown
from uiat.methods import IAT, UIAT, GradAlign
from uiat.models import MODELS, ModelConfig, PreActResNet, ResNet, WideResNet
from uiat.recipes import small
from uiat.recipes.paper import as_single_step
from uiat.recipes.small import at_radius
from uiat.reproduce.measures import Attacked, Curve, Inverse, Watch
from uiat.reproduce.stand_in import stand_in_name
from uiat.reproduce.timing import Timing, timing_of

PAPER_EPS = 8 / 255
ALIGN = {6: 0.112, 8: 0.2, 10: 0.356}
"""λ_align of GradAlign at ε = k/255, from its authors' code."""
Runs = Callable[[str, str, str], AnyConfig]
"""(method, one of the paper's data sets, one of its networks) → the run."""


def attack_of(config: AnyConfig) -> Any:
    """Return the attack of a configuration's method."""
    return config.method.attack


def change_method(config: AnyConfig, part: str | None, **changes: Any) -> AnyConfig:
    """Return a configuration with other numbers in its method, or in one part of it."""
    if part is not None:
        changes = {part: replace(getattr(config.method, part), **changes)}
    return replace(config, method=replace(config.method, **changes))  # type: ignore[type-var]


def tuned(config: AnyConfig, values: Mapping[str, float]) -> AnyConfig:
    """Return a run with another learning rate (`lr`) or other numbers of its method."""
    changes = {name: value for name, value in values.items() if name != "lr"}
    schedule = replace(config.train.schedule, lr=values.get("lr", config.train.schedule.lr))
    return change_method(replace(config, train=replace(config.train, schedule=schedule)), None, **changes)


@dataclass(frozen=True)
class Scale:
    """One scale."""

    name: str
    banner: str
    """The line above the numbers of this scale."""
    runs: Runs
    """Its runs, before tuning."""
    single_step_run: Callable[[str], AnyConfig]
    """The run of a single-step method, in Table 5."""
    generated: Callable[[str, str, str], AnyConfig | None]
    """The runs of Table 4, with its networks; `None` where the scale has none."""
    data: Mapping[str, str]
    """The paper's data sets that are measured, and what they are called here."""
    networks: Mapping[str, str]
    """The paper's networks, and the networks that replace them here."""
    generated_networks: Mapping[str, str]
    """The networks of Table 4, and the networks that replace them here."""
    eps: float
    """The radius that replaces ε = 8/255."""
    worth: str
    """What its numbers say of the paper's claims."""
    seeds: int
    images: int | None
    """Test images for natural accuracy, PGD-20, CW and curves; `None`: all."""
    robust: str
    """The attack of the columns `Robust`, of sweeps and of Figure 5."""
    robust_images: int | None
    """Test images for it and for AutoAttack; `None`: all."""
    watch: Watch
    rounds: int
    """How often every method is timed where times are compared."""
    tuned: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What `tuning` found better than a method's default: the learning rate (`lr`), or a field of the method."""
    aa: str = "autoattack"
    """The attack of the column `AA`."""
    lam: tuple[float, ...] = (1.0, 2.0, 3.5, 5.0, 6.5)
    omega: tuple[float, ...] = (1.0, 3.0, 6.0, 10.0)
    beta: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0)
    gamma: tuple[float, ...] = (0.5, 0.7, 0.9, 0.99)
    start: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9)
    """T, as fractions of the epochs."""
    one_off: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8)
    """T', as fractions of the epochs."""
    halves: tuple[float, ...] = tuple(k / 4 for k in range(-4, 9))
    """The grid of Figures 1 and 4, as multiples of ε."""
    difference: tuple[float, ...] = tuple(k / 4 for k in range(1, 9))
    """The grid of Figure 5."""

    def radius(self, levels: float) -> float:
        """Return the radius that replaces the paper's `levels`/255."""
        return self.eps * (levels / 8) if self.eps != PAPER_EPS else levels / 255

    def show_radius(self, levels: float) -> str:
        """Return that radius as text: in levels of 255 where they are the paper's, else as a decimal."""
        return f"{levels:g}/255" if self.eps == PAPER_EPS else f"{self.radius(levels):g}"

    def config(self, method: str, data: str = "CIFAR-10", network: str = "ResNet-18") -> AnyConfig:
        """Return the run of a method on one of the paper's data sets and networks."""
        return tuned(self.runs(method, data, network), self.tuned.get(method, {}))

    def single_step(self, method: str, levels: int) -> AnyConfig:
        """Return a run of Table 5 at the radius of so many levels."""
        config = self.single_step_run(method)
        changes: dict[str, Any] = {"attack": replace(attack_of(config), eps=self.radius(levels))}
        if isinstance(config.method, GradAlign):
            changes["lam_align"] = ALIGN[levels]
        return change_method(config, None, **changes)

    def larger(self, method: str, levels: int) -> AnyConfig:
        """Return a run of Table 3: another ε; α and ε' stay as they are."""
        config = self.config(method)
        return change_method(config, None, attack=replace(attack_of(config), eps=self.radius(levels)))

    def timing(self, network: str, methods: tuple[str, ...]) -> Timing:
        """Return the race of Table 2 on one of the paper's networks."""
        return timing_of(self.config("uiat", network=network), methods, self.rounds)

    def attacked(self, attack: str, weights: str = "best") -> Attacked:
        """Return a measurement by the paper's column: Natural, PGD, CW, AA (AutoAttack), Robust."""
        if attack in ("AA", "Robust"):
            return Attacked(self.aa if attack == "AA" else self.robust, self.robust_images, weights)
        name = {"Natural": "natural", "PGD": "pgd-20", "PGD-20": "pgd-20", "CW": "cw"}[attack]
        return Attacked(name, self.images, weights)

    def halves_curve(self) -> Curve:
        """Return the measurement of Figures 1 and 4."""
        return Curve("pgd-20", tuple(self.eps * k for k in self.halves), self.images)

    def difference_curve(self) -> Curve:
        """Return the measurement of Figure 5."""
        return Curve(self.robust, tuple(self.eps * k for k in self.difference), self.robust_images)

    def inverse(self) -> Inverse:
        """Return the measurement of Figure S1."""
        return Inverse(n=self.images)


# --- paper: A.2 as it stands, from the recipes ---

DATA = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "SVHN": "svhn"}
_NETWORKS = {"ResNet-18": "resnet18", "WRN-28": "wrn-28-10", "WRN-34": "wrn-34-10"}


def paper(method: str, data: str, network: str) -> AnyConfig:
    """Return the recipe of A.2."""
    return recipes.get(f"{DATA[data]}-{_NETWORKS[network]}-{method}")


# --- cpu: 3,000 images of CIFAR-10 at 16×16 (Table 1: and of CIFAR-100 with its 20 coarse classes), mirrored but
# not cropped, so that a small network fits them under attack and overfits as the paper's does (docs/log.md) ---

_SMALL: dict[str, ModelConfig] = {
    "ResNet-18": ResNet(blocks=(1, 1, 1), width=24),
    "WRN-28": MODELS["wrn-10-1"],
    "WRN-34": WideResNet(depth=16, widen=1),
}
TUNED: dict[str, dict[str, float]] = {"sat": {"lr": 0.2}, "uiat": {"lr": 0.2}, "uiat-oneoff": {"lr": 0.2}}
"""`Scale.tuned` of this scale."""


def cpu(method: str, data: str, network: str) -> AnyConfig:
    """Return a run on a part of CIFAR-10 or, for CIFAR-100, of its images with coarse labels."""
    config, name = small.cifar10(method), "cifar100-coarse" if data == "CIFAR-100" else "cifar10"
    return replace(
        config,
        data=replace(config.data, name=name, crop=0, subset=3_500, validation=500, test_subset=None),
        model=_SMALL[network],
        train=replace(config.train, epochs=24, batch_size=50, schedule=Schedule(lr=0.1), log_every=0),
        validate=replace(config.validate, steps=10),
    )


# --- smoke: digits and the smallest network, so that everything takes minutes ---

_TINY: dict[str, ModelConfig] = {
    "ResNet-18": ResNet(blocks=(1, 1), width=8),
    "WRN-28": ResNet(blocks=(1, 1), width=12),
    "WRN-34": ResNet(blocks=(1, 1, 1), width=8),
}
SMOKE_EPOCHS = 8
SMOKE_EPS = 0.1
"""Small enough that twice this radius (Table 3's 16/255) can still be learned in few epochs."""


def smoke(method: str, data: str, network: str) -> AnyConfig:
    """Return a run on digits."""
    config = small.digits(method)
    return replace(
        config,
        model=_TINY[network],
        method=at_radius(methods.get(method), SMOKE_EPS),
        data=replace(config.data, subset=800, validation=80),
        train=replace(config.train, epochs=SMOKE_EPOCHS, log_every=0),
        validate=replace(config.validate, steps=10, eps=SMOKE_EPS if method == "natural" else None),
    )


# --- Table 4: its recipes, and small relatives of them ---

_GENERATED_NETWORKS = {"PRN-18": "preactresnet18", "WRN-28-10": "wrn-28-10"}
_RELATIVES: dict[str, ModelConfig] = {
    "PRN-18": PreActResNet(blocks=(1, 1, 1), width=16, activation="silu", normalize=True),
    "WRN-28-10": WideResNet(depth=10, widen=1, activation="silu", normalize=True),
}


def _paper_generated(method: str, data: str, network: str) -> AnyConfig:
    return recipes.get(f"{DATA[data]}-ddpm-{_GENERATED_NETWORKS[network]}-{method}")


def _cpu_generated(method: str, data: str, network: str) -> AnyConfig | None:
    if data != "CIFAR-10":
        return None
    config, size = _paper_generated(method, data, network), cpu(method, data, "ResNet-18")
    images = replace(size.data, generated=config.data.generated)
    run = replace(config, data=images, model=_RELATIVES[network])
    return _fewer_epochs(run, size.train.epochs, batch_size=size.train.batch_size)


def smoke_generated(method: str, data: str, network: str) -> AnyConfig | None:
    """Return a run on digits with stand-ins for generated ones."""
    if (data, network) != ("CIFAR-10", "PRN-18"):
        return None
    config, size = _paper_generated(method, data, network), smoke(method, data, "ResNet-18")
    images = replace(size.data, generated=Generated(stand_in_name(size.data), 0.3))
    model = PreActResNet(blocks=(1, 1), width=8, activation="silu", normalize=True)
    run = replace(config, data=images, model=model, method=at_radius(config.method, SMOKE_EPS), validate=size.validate)
    return _fewer_epochs(run, SMOKE_EPOCHS, batch_size=size.train.batch_size)


def _fewer_epochs(config: AnyConfig, epochs: int, *, batch_size: int) -> AnyConfig:
    """Return a run of so many epochs, with everything that counts epochs in proportion."""
    before, method = config.train.epochs, config.method
    train = replace(config.train, epochs=epochs, batch_size=batch_size, log_every=0)
    if isinstance(method, IAT | UIAT):
        config = change_method(config, "momentum", start=method.momentum.start / before)
    if method.helper_epochs:
        config = change_method(config, None, helper_epochs=max(1, method.helper_epochs * epochs // before))
    return replace(config, train=train)


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        "smoke",
        "smoke: digits",
        smoke,
        lambda method: as_single_step(smoke(method, "CIFAR-10", "ResNet-18")),
        smoke_generated,
        data={"CIFAR-10": "smoke: digits"},
        networks={
            "ResNet-18": "ResNet (1, 1), width 8",
            "WRN-28": "ResNet (1, 1), width 12",
            "WRN-34": "ResNet (1, 1, 1), width 8",
        },
        generated_networks={"PRN-18": "PreActResNet (1, 1), width 8"},
        eps=SMOKE_EPS,
        worth="Digits, a toy network, 8 epochs and a few images: this shows that everything works, and decides nothing "
        "of what the paper says of its own data.",
        seeds=1,
        images=None,
        robust="autoattack",
        robust_images=32,
        watch=Watch(train=200, test=None),
        rounds=5,
        lam=(1.0, 3.5, 6.5),
        omega=(3.0, 6.0),
        beta=(0.0, 1.0, 2.0),
        gamma=(0.5, 0.9, 0.99),
        start=(0.25, 0.5, 0.75),
        one_off=(0.25, 0.5, 0.8),
        halves=tuple(k / 2 for k in range(-2, 5)),
        difference=(0.5, 1.0, 1.5),
    ),
    "cpu": Scale(
        "cpu",
        "cpu: CIFAR-10 at 16×16",
        cpu,
        lambda method: as_single_step(cpu(method, "CIFAR-10", "ResNet-18")),
        _cpu_generated,
        data={"CIFAR-10": "cpu: CIFAR-10 at 16×16", "CIFAR-100": "cpu: CIFAR-100, 20 coarse classes, at 16×16"},
        networks={"ResNet-18": "ResNet-8, width 24", "WRN-28": "WRN-10-1", "WRN-34": "WRN-16-1"},
        generated_networks={"PRN-18": "PreActResNet-8", "WRN-28-10": "WRN-10-1"},
        eps=PAPER_EPS,
        worth="Real images and real methods at a small size: what holds here need not hold at the paper's size, nor "
        "the other way round.",
        seeds=3,
        images=None,
        robust="apgd-ce+apgd-t",
        robust_images=1000,
        watch=Watch(train=300, test=1000),
        rounds=5,
        tuned=TUNED,
        lam=(1.75, 3.5, 7.0),
        omega=(3.0, 6.0, 12.0),
        beta=(0.0, 1.0, 2.0),
        gamma=(0.5, 0.9, 0.99),
        start=(0.25, 0.5, 0.75),
        one_off=(0.25, 0.5, 0.8),
    ),
    "paper": Scale(
        "paper",
        "paper",
        paper,
        lambda method: recipes.get(f"cifar10-preactresnet18-{method}"),
        _paper_generated,
        data={name: name for name in DATA},
        networks={"ResNet-18": "ResNet-18", "WRN-28": "WRN-28-10", "WRN-34": "WRN-34-10"},
        generated_networks={"PRN-18": "PRN-18", "WRN-28-10": "WRN-28-10"},
        eps=PAPER_EPS,
        worth="The paper's own setting, but for what it leaves open (docs/decisions.md).",
        seeds=1,
        images=None,
        robust="autoattack",
        robust_images=None,
        watch=Watch(train=10_000, test=None),
        rounds=5,
    ),
}


def get(name: str) -> Scale:
    """Return a scale by its name."""
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return SCALES[name]
