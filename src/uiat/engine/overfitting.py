"""Catastrophic overfitting of single-step training: robust to its own one step, and to nothing else."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from uiat.attacks import FGSM, NFGSM, PGD, RSFGSM
from uiat.methods import MethodConfig

LEAST = 0.1
"""A run whose best robust accuracy is below this has not learned enough to collapse."""
FALL = 0.5
"""Robust accuracy has collapsed when less than this share of its best is left …"""
STAY = 0.8
"""… while the network keeps at least this share of the accuracy it then had under FGSM."""


def is_single_step(method: MethodConfig) -> bool:
    """Whether a method's configuration trains with one gradient step a sample."""
    attack = method.attack
    return isinstance(attack, FGSM | RSFGSM | NFGSM) or (isinstance(attack, PGD) and attack.steps == 1)


def one_step(attack: PGD) -> PGD:
    """Return FGSM at the radius, and in the norm, of the attack that watches the run."""
    return replace(attack, step=attack.eps, steps=1, start="none")


@dataclass
class Overfitting:
    """Watches the accuracies of a run's epochs."""

    epoch: int = 0
    """The epoch of the best robust accuracy so far, and its accuracies."""
    robust: float = 0.0
    fgsm: float = 0.0
    fallen: bool = False
    """Whether robust accuracy has collapsed, and has not come back to `STAY` of its best since."""
    first: int = 0
    """The epoch of the first collapse; 0: none."""

    def begins(self, epoch: int, robust: float, fgsm: float) -> bool:
        """Take in an epoch's accuracies under PGD and FGSM; return whether a collapse begins with it."""
        low = self.robust >= LEAST and robust < FALL * self.robust
        begins = low and fgsm >= STAY * self.fgsm and not self.fallen
        self.fallen = begins or (self.fallen and robust < STAY * self.robust)
        if begins:
            self.first = self.first or epoch
        if robust > self.robust:
            self.epoch, self.robust, self.fgsm = epoch, robust, fgsm
        return begins

    def warning(self, robust: float, fgsm: float, kept: int) -> str:
        """Say what happened, and whose weights are best."""
        return (
            f"catastrophic overfitting: accuracy under PGD fell from {self.robust:.1%} in epoch {self.epoch} to "
            f"{robust:.1%}, while it is {fgsm:.1%} under FGSM (then {self.fgsm:.1%}); "
            f"the weights of epoch {kept} are kept as best"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all there is to go on from."""
        return asdict(self)
