"""Scales: the runs that replace the paper's (data, networks, epochs), and their measurements."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from uiat.config import AnyConfig
from uiat.methods import GradAlign
from uiat.recipes.variants import change_method, tuned
from uiat.reproduce.measures import BATCH_SIZE, Attacked, Curve, Inverse, Watch
from uiat.reproduce.timing import Timing, timing_of

PAPER_EPS = 8 / 255
ALIGN = {6: 0.112, 8: 0.2, 10: 0.356}
"""λ_align of GradAlign at ε = k/255, from its authors' code."""
Runs = Callable[[str, str, str], AnyConfig]
"""(method, one of the paper's data sets, one of its networks) → the run."""


@dataclass(frozen=True)
class Scale:
    """One scale; a number of a run is that of its recipe or method, unless `runs` or `tuned` overrides it."""

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
    """Data sets of the paper that are measured, and their names here."""
    networks: Mapping[str, str]
    """The paper's networks, and the networks that replace them here."""
    generated_networks: Mapping[str, str]
    """The networks of Table 4, and the networks that replace them here."""
    eps: float
    """The radius that replaces ε = 8/255."""
    caveat: str
    """What its numbers do and do not show about the paper's claims."""
    seeds: int
    robust: str
    """The attack of the columns `Robust`, of sweeps and of Figure 5."""
    robust_images: int | None
    """Test images for it and for AutoAttack; `None`: all."""
    watch: Watch
    rounds: int
    """Repetitions of each benchmark."""
    images: int | None = None
    """Test images for natural accuracy, PGD-20, CW and curves; `None`: all."""
    tuned: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Overrides of a method's recipe, found by `tuning`: the learning rate (`lr`), or a field of the method."""
    weights: str = "best"
    """The weights that are measured unless a table says otherwise: `best` epoch on the validation split, or `last`."""
    aa: str = "autoattack"
    """The attack of the column `AA`."""
    lam: tuple[float, ...] = (1.0, 2.0, 3.5, 5.0, 6.5)
    beta: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0)
    gamma: tuple[float, ...] = (0.5, 0.7, 0.9, 0.99)
    start: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9)
    """T, as fractions of the epochs."""
    one_off: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8)
    """T', as fractions of the epochs."""
    larger_radii: tuple[int, ...] = (10, 12, 16)
    """ε of Table 3, in levels of 255."""
    fronts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Values of each method's weight on its front; for SAT, the ε it is trained at, in levels of 255."""
    single_step_radii: tuple[int, ...] = (6, 8, 10)
    """ε of Table 5, in levels of 255."""
    halves: tuple[float, ...] = tuple(k / 4 for k in range(-4, 9))
    """The grid of Figures 1 and 4, as multiples of ε."""
    difference: tuple[float, ...] = tuple(k / 4 for k in range(1, 9))
    """The grid of Figure 5."""
    batch_size: int = BATCH_SIZE
    """Images that a measurement attacks at a time."""
    finished_in: Path | None = None
    """The folder of finished runs, from which further runs follow (`selection`); `None`: none are known."""

    def with_training(self, **changes: Any) -> "Scale":
        """Return the scale with other settings of `Training` in all of its runs, which its banner then names."""
        if not changes:
            return self

        def changed(build: Callable[..., AnyConfig | None]) -> Callable[..., Any]:
            def run(*names: str) -> AnyConfig | None:
                config = build(*names)
                return config and replace(config, train=replace(config.train, **changes))

            return run

        return replace(
            self,
            banner=f"{self.banner} ({', '.join(f'{name} {value}' for name, value in changes.items())})",
            runs=changed(self.runs),
            single_step_run=changed(self.single_step_run),
            generated=changed(self.generated),
        )

    def radius(self, levels: float) -> float:
        """Return the radius that replaces the paper's `levels`/255."""
        return self.eps * (levels / 8) if self.eps != PAPER_EPS else levels / 255

    def show_radius(self, levels: float) -> str:
        """Return that radius as text: in levels of 255 where they are the paper's, else as a decimal."""
        return f"{levels:g}/255" if self.eps == PAPER_EPS else f"{self.radius(levels):g}"

    def config(self, method: str, data: str = "CIFAR-10", network: str = "ResNet-18") -> AnyConfig:
        """Return the run of a method on one of the paper's data sets and networks."""
        return tuned(self.runs(method, data, network), self.tuned.get(method, {}))

    def instead_of(self, other: str, method: str) -> AnyConfig:
        """Return the run of a method with the learning rate and weight of another, which it replaces."""
        return tuned(self.runs(method, "CIFAR-10", "ResNet-18"), self.tuned.get(other, {}))

    def single_step(self, method: str, levels: int) -> AnyConfig:
        """Return a run of Table 5 at the radius of so many levels."""
        config = change_method(self.single_step_run(method), "attack", eps=self.radius(levels))
        aligned = {"lam_align": ALIGN[levels]} if isinstance(config.method, GradAlign) else {}
        return change_method(config, None, **aligned)

    def larger(self, method: str, levels: float) -> AnyConfig:
        """Return a run of Table 3: another ε, with the default α and ε'."""
        return change_method(self.config(method), "attack", eps=self.radius(levels))

    def timing(self, network: str, methods: tuple[str, ...]) -> Timing:
        """Return the benchmark of Table 2 on one of the paper's networks."""
        return timing_of(self.config("uiat", network=network), methods, self.rounds)

    def attacked(self, attack: str, weights: str | None = None) -> Attacked:
        """Return a measurement by the paper's column: Natural, PGD, CW, AA (AutoAttack), Robust."""
        weights = weights or self.weights
        if attack in ("AA", "Robust"):
            name = self.aa if attack == "AA" else self.robust
            return Attacked(name, self.robust_images, weights, batch_size=self.batch_size)
        name = {"Natural": "natural", "PGD": "pgd-20", "PGD-20": "pgd-20", "CW": "cw"}[attack]
        return Attacked(name, self.images, weights, batch_size=self.batch_size)

    def halves_curve(self) -> Curve:
        """Return the measurement of Figures 1 and 4."""
        grid = tuple(self.eps * k for k in self.halves)
        return Curve("pgd-20", grid, self.images, self.weights, self.batch_size)

    def difference_curve(self) -> Curve:
        """Return the measurement of Figure 5."""
        grid = tuple(self.eps * k for k in self.difference)
        return Curve(self.robust, grid, self.robust_images, self.weights, self.batch_size)

    def inverse(self) -> Inverse:
        """Return the measurement of Figure S1."""
        return Inverse(n=self.images, batch_size=self.batch_size)
