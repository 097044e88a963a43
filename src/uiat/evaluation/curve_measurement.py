"""Accuracy against ε for the easier and the harder half of the images (Figures 1 and 4)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.attacks import PGD
from uiat.crafting import crafting
from uiat.data.images import Images
from uiat.data.loader import plain
from uiat.errors import UserError
from uiat.evaluation.cascade import Restart
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.suite import Plan, plan_attack, run_plans
from uiat.targets import InstanceInverse

INVERSE_STEPS = 20
"""Steps of ε/4 of the inverse perturbation: as many as PGD-20 has above 0."""


@dataclass(frozen=True)
class CurveVerdicts:
    """The verdict on every image at every ε, and which half it belongs to."""

    points: tuple[Plan, ...]
    """What was run at each ε, ascending: the inverse perturbation below 0, nothing at 0, the attack above."""
    correct: Tensor
    """(points, images) of bool."""
    easier: Tensor
    """(images,) of bool: whether an image is in the easier half."""
    seconds: tuple[float, ...]
    notices: tuple[str, ...]

    @property
    def grid(self) -> tuple[float, ...]:
        """The radii, ascending."""
        return tuple(point.eps for point in self.points)

    def groups(self) -> dict[str, Tensor]:
        """Return the verdicts on all images, and on each half."""
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


def plan_points(grid: Sequence[float], attack: str, base: PGD, *, num_classes: int, seed: int) -> tuple[Plan, ...]:
    """Return what to run at each ε, ascending, in the norm and with the relative step size of `base`."""
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


def _point(eps: float, attack: str, base: PGD, num_classes: int, seed: int) -> Plan:
    if eps == 0:
        return Plan("natural", (), {}, several_eps=True)
    if eps < 0:
        inverse = InstanceInverse(-eps, -eps / 4, INVERSE_STEPS, beta=0.0, start="uniform", norm=base.norm)
        descent = Restart(lambda model, x, y, draws: inverse(model, x, y, x, draws), INVERSE_STEPS, seed)  # β = 0: no x̂
        setting = {**asdict(inverse), "seed": seed}
        return Plan("inverse", (descent,), setting, eps=eps, several_eps=True, every_image=True)
    step = base.step * (eps / base.eps) if base.step is not None and base.eps else None
    plan = plan_attack(attack, replace(base, eps=eps, step=step), num_classes=num_classes, seed=seed)
    return replace(plan, several_eps=True)


def check_count(n: int) -> None:
    """Refuse fewer images than two halves need."""
    if n < 2:
        raise UserError("two halves need at least two images: give --n 2 or more.")


def easier_half(losses: Tensor) -> Tensor:
    """Return which images have the lower loss: half of them, rounded up; ties are broken by position."""
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
    points: Sequence[Plan],
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    ledger: Ledger | None = None,
) -> CurveVerdicts:
    """Classify every image at every ε.

    An attack perturbs only images that are classified correctly without it; the inverse perturbation perturbs every
    image, since it can correct a misclassified one. With a ledger on disk, an interrupted measurement resumes at its
    next batch.
    """
    easier = easier_half(natural_losses(model, images, batch_size=batch_size, device=device))
    result = run_plans(model, images, points, batch_size=batch_size, device=device, ledger=ledger, progress="curves")
    correct = torch.stack([point.correct for point in result.values()])
    seconds = tuple(point.seconds for point in result.values())
    return CurveVerdicts(tuple(points), correct, easier, seconds, tuple(result.notices))
