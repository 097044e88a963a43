"""Accuracy against ε for the easier and the harder half of the images (Figures 1 and 4)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isfinite
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.attacks import PGD
from uiat.crafting import crafting
from uiat.data.images import Images, to_unit
from uiat.data.loader import plain
from uiat.errors import UserError
from uiat.evaluation import autoattack
from uiat.evaluation.cascade import Component, natural_stage, run_cascade
from uiat.evaluation.ledger import Ledger, Stage
from uiat.evaluation.suite import plan_attack
from uiat.progress import Ticker
from uiat.rng import SampleDraws
from uiat.targets import InstanceInverse

INVERSE_STEPS = 20
"""Steps of ε/4 of the inverse perturbation: as many as PGD-20 has on the other side of 0."""


@dataclass(frozen=True)
class Descent:
    """The inverse perturbation as a component of a cascade: PGD that descends cross-entropy."""

    inverse: InstanceInverse
    seed: int
    name: str = "inverse"

    @property
    def cost(self) -> float:
        """One forward and backward a step, and a look at the result."""
        return self.inverse.steps + 0.5

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, index: tuple[int, ...]) -> Tensor:
        """Return the inverse adversary of every x; with β = 0 it needs no x̂."""
        return self.inverse(model, x, y, x, SampleDraws(self.seed, index=index))


@dataclass(frozen=True)
class Point:
    """What happens at one ε of the grid: inverse below 0, nothing at 0, the attack above."""

    eps: float
    kind: str
    components: tuple[Component, ...]
    setting: dict[str, Any]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class CurveVerdicts:
    """The verdict on every example at every ε, and which half it belongs to."""

    points: tuple[Point, ...]
    correct: Tensor
    """(points, examples) of bool."""
    easier: Tensor
    """(examples,) of bool: whether an example is in the easier half."""
    seconds: tuple[float, ...]
    notices: tuple[str, ...]

    @property
    def grid(self) -> tuple[float, ...]:
        """The radii, ascending."""
        return tuple(point.eps for point in self.points)

    def groups(self) -> dict[str, Tensor]:
        """Return the verdicts of all examples, and of each half."""
        return {
            "all": self.correct,
            "easier": self.correct[:, self.easier],
            "harder": self.correct[:, ~self.easier],
        }


def default_grid(eps: float) -> tuple[float, ...]:
    """Return −ε to 2ε in steps of ε/4, the range of Figure 1 at ε = 8/255."""
    if eps == 0:
        raise UserError("ε is 0, so there is no grid around it: give --eps, or the radii with --grid.")
    return tuple(eps * k / 4 for k in range(-4, 9))


def plan_points(grid: Sequence[float], attack: str, base: PGD, *, num_classes: int, seed: int) -> tuple[Point, ...]:
    """Return what to do at each ε, ascending, in the norm and with the relative step of `base`."""
    if not grid:
        raise UserError("the grid is empty: give at least one ε, such as --grid -8/255 0 8/255.")
    for eps in grid:
        if not isfinite(eps):
            raise UserError(f"the grid has ε = {eps}: give finite numbers.")
    if not plan_attack(attack, base, num_classes=num_classes, seed=seed).components:
        raise UserError(
            f"--attack {attack} perturbs nothing: give an attack, such as pgd-20 (see `uiat list attacks`)."
        )
    return tuple(_point(eps, attack, base, num_classes, seed) for eps in sorted(set(grid)))


def _point(eps: float, attack: str, base: PGD, num_classes: int, seed: int) -> Point:
    if eps == 0:
        return Point(eps, "natural", (), {})
    if eps < 0:
        inverse = InstanceInverse(-eps, -eps / 4, INVERSE_STEPS, beta=0.0, start="uniform", norm=base.norm)
        return Point(eps, "inverse", (Descent(inverse, seed),), {**asdict(inverse), "seed": seed})
    step = base.step * (eps / base.eps) if base.step is not None and base.eps else None
    plan = plan_attack(attack, replace(base, eps=eps, step=step), num_classes=num_classes, seed=seed)
    return Point(eps, attack, plan.components, plan.setting, plan.notices)


def check_count(n: int) -> None:
    """Refuse fewer images than two halves need."""
    if n < 2:
        raise UserError("two halves need at least two images: give --n 2 or more.")


def easier_half(losses: Tensor) -> Tensor:
    """Return which examples have the lower loss: half of them (one more if they are odd), ties by their place."""
    check_count(len(losses))
    order = losses.argsort(stable=True)
    easier = torch.zeros(len(losses), dtype=torch.bool)
    easier[order[: (len(losses) + 1) // 2]] = True
    return easier


def natural_losses(model: nn.Module, images: Images, *, batch_size: int, device: torch.device | str) -> Tensor:
    """Return the cross-entropy of each natural image, on the CPU."""
    with crafting(model, "eval"), torch.no_grad():
        losses = [
            F.cross_entropy(model(batch.x), batch.y, reduction="none") for batch in plain(images, batch_size, device)
        ]
    return torch.cat(losses).cpu()


def measure(
    model: nn.Module,
    images: Images,
    points: Sequence[Point],
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    ledger: Ledger | None = None,
) -> CurveVerdicts:
    """Classify every image at every ε.

    An attack touches only what is classified right without one; the inverse perturbation touches every image, since it
    can mend a wrong one. With a ledger on disk, a killed measurement goes on with its next batch.
    """
    ledger = ledger or Ledger()
    easier = easier_half(natural_losses(model, images, batch_size=batch_size, device=device))
    total = sum(part.cost for point in points for part in point.components) * len(images)
    notices = [notice for point in points for notice in point.notices]
    stages: list[Stage] = []
    with crafting(model, "eval"), autoattack.collected_warnings() as heard, Ticker(total, "curves") as ticker:
        natural = natural_stage(model, images, batch_size=batch_size, device=device)
        if any("components" in point.setting for point in points):
            x = to_unit(images.x[:batch_size].to(device))
            notices += autoattack.check_pitfalls(model, x, images.y[:batch_size].to(device))
        for point in points:
            if not point.components:
                stages.append(natural)
                continue
            name, label = _begin(ledger, point, natural), f"{point.kind} at ε = {point.eps:.3g}"
            stage = run_cascade(
                model,
                images,
                name,
                point.components,
                batch_size=batch_size,
                device=device,
                ledger=ledger,
                advance=partial(_advance, ticker, label),
            )
            notices += autoattack.square_warning(stage.after)
            stages.append(stage)
    correct = torch.stack([stage.standing for stage in stages])
    seconds = tuple(stage.seconds for stage in stages)
    return CurveVerdicts(tuple(points), correct, easier, seconds, tuple(dict.fromkeys([*notices, *heard])))


def _begin(ledger: Ledger, point: Point, natural: Stage) -> str:
    """Put a point's stage into the ledger, unless it is there from before, and return its name."""
    name = f"ε = {point.eps!r}"
    if name not in ledger.stages:
        standing = torch.ones_like(natural.standing) if point.eps < 0 else natural.standing.clone()
        ledger.stages[name] = Stage(standing, natural.queue)
    return name


def _advance(ticker: Ticker, label: str, work: float, _: str, free: bool) -> None:
    ticker.advance(work, label, free=free)
