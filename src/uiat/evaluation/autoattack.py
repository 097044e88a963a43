"""Components of AutoAttack (Croce and Hein, 2020), run by the classes of its authors.

`cascade.py` replaces their driver, which shows no progress, fails on fewer than ten classes and cannot resume. With the
same seed and batch size both give the same verdicts.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor, nn

from uiat.balls import Norm
from uiat.errors import UserError, unknown

Version = Literal["standard", "plus"]

CASCADES: dict[Version, tuple[str, ...]] = {
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "plus": ("apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"),
}
COMPONENT_NAMES = CASCADES["plus"]
TARGETS = 9
"""Target classes of the targeted attacks, where there are as many."""
FEWEST_CLASSES = {"apgd-dlr": 3, "apgd-t": 4}
"""The DLR loss divides by the gap to the third logit, the targeted DLR loss by one to the fourth."""
LOGGER = logging.getLogger("uiat.autoattack")


@dataclass(frozen=True)
class AutoAttackComponent:
    """One attack of AutoAttack, with the parameters of its version."""

    name: str
    eps: float
    norm: Norm
    num_classes: int
    seed: int = 0
    version: Version = "standard"
    steps: int = 100
    queries: int = 5000

    @property
    def targets(self) -> int:
        """Number of target classes: nine, or all other classes."""
        return min(TARGETS, self.num_classes - 1)

    @property
    def restarts(self) -> int:
        """Number of random restarts of an untargeted attack."""
        return 5 if self.version == "plus" and self.name in ("apgd-ce", "apgd-dlr", "fab") else 1

    @property
    def cost(self) -> float:
        """Passes for one example, roughly."""
        if self.name == "square":
            return self.queries / 3
        passes = self.steps * (2 if self.name.startswith("fab") else 1)
        return float(passes * (self.targets if self.name.endswith("-t") else self.restarts))

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, index: tuple[int, ...]) -> Tensor:
        """Attack every x; the global random state is restored."""
        with torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
            return self._build(model, x.device).perturb(x.contiguous(), y)  # type: ignore[no-any-return]

    def _build(self, model: nn.Module, device: torch.device) -> Any:
        from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
        from pyautoattack.fab_pt import FABAttack_PT
        from pyautoattack.square import SquareAttack

        norm = {"linf": "Linf", "l2": "L2"}[self.norm]
        shared = {"norm": norm, "eps": self.eps, "seed": self.seed, "device": device, "verbose": False}
        if self.name == "square":
            return SquareAttack(model, p_init=0.8, n_queries=self.queries, n_restarts=1, resc_schedule=False, **shared)
        if self.name.startswith("fab"):
            attack = FABAttack_PT(model, n_restarts=self.restarts, n_iter=self.steps, **shared)
            attack.targeted, attack.n_target_classes = self.name == "fab-t", self.targets
            return attack
        shared |= {"n_iter": self.steps, "n_restarts": self.restarts, "eot_iter": 1, "rho": 0.75, "logger": LOGGER}
        if self.name == "apgd-t":
            return APGDAttack_targeted(model, n_target_classes=self.targets, **shared)
        return APGDAttack(model, loss=self.name.removeprefix("apgd-"), **shared)


def build_components(
    names: tuple[str, ...], *, eps: float, norm: Norm, num_classes: int, seed: int, version: Version = "standard"
) -> tuple[list[AutoAttackComponent], list[str]]:
    """Return the components that can run on this number of classes, and a notice for each that is skipped."""
    for name in names:
        if name not in COMPONENT_NAMES:
            raise unknown("AutoAttack component", name, COMPONENT_NAMES)
    if find_spec("pyautoattack") is None:
        raise UserError("AutoAttack needs the package pyautoattack: pip install pyautoattack.")
    possible = [name for name in names if num_classes >= FEWEST_CLASSES.get(name, 2)]
    notices = [
        f"{name} is skipped: its loss needs {FEWEST_CLASSES[name]} classes and there are {num_classes}."
        for name in names
        if name not in possible
    ]
    if not possible:
        raise UserError(f"{'+'.join(names)} cannot run on {num_classes} classes: choose apgd-ce, fab-t or square.")
    return [AutoAttackComponent(name, eps, norm, num_classes, seed, version) for name in possible], notices


def check_pitfalls(model: nn.Module, x: Tensor, y: Tensor) -> list[str]:
    """Return a warning for each property of the network with which AutoAttack is misleading, by its authors' checks."""
    from pyautoattack import checks

    with collected_warnings() as warnings:
        checks.check_randomized(model, x, y, bs=len(x), logger=LOGGER)
        checks.check_range_output(model, x, logger=LOGGER)
    return warnings


def square_warning(after: dict[str, float]) -> list[str]:
    """Return the warning of the authors' check if Square succeeds where the gradient-based attacks did not."""
    if "square" not in after:
        return []
    from pyautoattack import checks

    with collected_warnings() as warnings:
        checks.check_square_sr({"clean": 1.0, **after}, logger=LOGGER)
    return warnings


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the messages that the authors' checks log, each once, without their "See" references."""
    warnings: list[str] = []

    class WarningCatcher(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage().split(" See ")[0].strip()
            if message not in warnings:
                warnings.append(message)

    catcher = WarningCatcher()
    LOGGER.addHandler(catcher)
    LOGGER.propagate = False
    try:
        yield warnings
    finally:
        LOGGER.removeHandler(catcher)
