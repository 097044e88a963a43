"""How large everything is: the data, networks, epochs, images under attack and grids of each scale."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from uiat.config import AnyConfig
from uiat.errors import unknown
from uiat.methods import GradAlign
from uiat.reproduce.configs import CONFIGS, DATA, GENERATED, SINGLE_STEP, SMOKE_EPS, attack_of, change_method
from uiat.reproduce.learning import Watch
from uiat.reproduce.measures import Attacked, Curve, Inverse
from uiat.reproduce.timing import Timing, timing_of

PAPER_EPS = 8 / 255
ALIGN = {6: 0.112, 8: 0.2, 10: 0.356}
"""λ_align of GradAlign at ε = k/255, from its authors' code."""


@dataclass(frozen=True)
class Scale:
    """One scale."""

    name: str
    banner: str
    """What stands above numbers of this scale."""
    data: Mapping[str, str]
    """The paper's data sets that are measured, and what they are called here."""
    networks: Mapping[str, str]
    """The paper's networks, and what stands in for them."""
    generated_networks: Mapping[str, str]
    """The networks of Table 4, and what stands in for them."""
    eps: float
    """What stands in for ε = 8/255."""
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
    """Turns that every method takes where times are compared."""
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
        """Return what stands in for the paper's radius of so many levels of 255."""
        return self.eps * (levels / 8) if self.eps != PAPER_EPS else levels / 255

    def show_radius(self, levels: float) -> str:
        """Write that radius the way this scale's data asks for."""
        return f"{levels:g}/255" if self.eps == PAPER_EPS else f"{self.radius(levels):g}"

    def config(self, method: str, data: str = "CIFAR-10", network: str = "ResNet-18") -> AnyConfig:
        """Return the run of a method on one of the paper's data sets and networks."""
        return CONFIGS[self.name](method, data, network)

    def single_step(self, method: str, levels: int) -> AnyConfig:
        """Return a run of Table 5 at the radius of so many levels."""
        config = SINGLE_STEP[self.name](method)
        changes: dict[str, Any] = {"attack": replace(attack_of(config), eps=self.radius(levels))}
        if isinstance(config.method, GradAlign):
            changes["lam_align"] = ALIGN[levels]
        return change_method(config, None, **changes)

    def larger(self, method: str, levels: int) -> AnyConfig:
        """Return a run of Table 3: another ε; α and ε' stay as they are."""
        config = self.config(method)
        return change_method(config, None, attack=replace(attack_of(config), eps=self.radius(levels)))

    def generated(self, method: str, data: str, network: str) -> AnyConfig | None:
        """Return a run of Table 4; `None` where the scale has none."""
        return GENERATED[self.name](method, data, network)

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


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        "smoke",
        "smoke: digits",
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
        data={"CIFAR-10": "cpu: CIFAR-10 at 16×16"},
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
    ),
    "paper": Scale(
        "paper",
        "paper",
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
