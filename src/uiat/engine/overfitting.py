"""Catastrophic overfitting: single-step training that remains robust to FGSM but not to multi-step attacks."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from uiat.attacks import FGSM, NFGSM, PGD, RSFGSM
from uiat.methods import MethodConfig

LEAST = 0.1
"""Minimum of the best robust accuracy for a collapse to be reported."""
FALL = 0.5
"""Robust accuracy has collapsed when it is below this share of its best …"""
STAY = 0.8
"""… while the accuracy under FGSM is at least this share of that of the best epoch."""


def is_single_step(method: MethodConfig) -> bool:
    """Whether a method trains with one gradient step per sample."""
    attack = method.attack
    return isinstance(attack, FGSM | RSFGSM | NFGSM) or (isinstance(attack, PGD) and attack.steps == 1)


def one_step(attack: PGD) -> PGD:
    """Return FGSM with the radius and norm of the validation attack."""
    return replace(attack, step=attack.eps, steps=1, start="none")


@dataclass
class Overfitting:
    """Monitors the accuracies of a run's epochs."""

    epoch: int = 0
    """The epoch of the best robust accuracy so far, and its accuracies."""
    robust: float = 0.0
    fgsm: float = 0.0
    fallen: bool = False
    """Whether robust accuracy has collapsed and not recovered to `STAY` of its best."""
    first: int = 0
    """The epoch of the first collapse; 0: none."""

    def begins(self, epoch: int, robust: float, fgsm: float) -> bool:
        """Update with an epoch's accuracies under PGD and FGSM; return whether a collapse begins."""
        low = self.robust >= LEAST and robust < FALL * self.robust
        begins = low and fgsm >= STAY * self.fgsm and not self.fallen
        self.fallen = begins or (self.fallen and robust < STAY * self.robust)
        if begins:
            self.first = self.first or epoch
        if robust > self.robust:
            self.epoch, self.robust, self.fgsm = epoch, robust, fgsm
        return begins

    def warning(self, robust: float, fgsm: float, kept: int) -> str:
        """Return the warning, which names the best epoch."""
        return (
            f"catastrophic overfitting: accuracy under PGD fell from {self.robust:.1%} in epoch {self.epoch} to "
            f"{robust:.1%}, while it is {fgsm:.1%} under FGSM (then {self.fgsm:.1%}); "
            f"the weights of epoch {kept} are kept as best"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return asdict(self)
