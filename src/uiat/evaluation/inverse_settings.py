"""With which settings inverse examples are made: a run's own where its method has some, the paper's else."""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

from uiat.attacks import PGD
from uiat.errors import UserError
from uiat.methods import MethodConfig
from uiat.ranges import check_radius
from uiat.targets import InstanceInverse, UniversalInverse

STEPS = 5
"""Steps of ε'/2 of an instance-wise inverse (A.2), where a run has no number of its own."""
ATTACK_STEPS = 10


@dataclass(frozen=True)
class InverseSettings:
    """How x̂, the instance-wise x̌ and the universal z are found; both inverses descend the same L_Inv."""

    attack: PGD
    instance: InstanceInverse
    universal: UniversalInverse

    @property
    def beta(self) -> float:
        """β of Eq. 4, for both."""
        return self.instance.beta


def inverse_settings(
    method: MethodConfig | None, base: PGD, *, eps: float | None = None, beta: float | None = None
) -> InverseSettings:
    """Return ε', the steps and β: those asked for, else those of the run's method, else the paper's.

    The attack is that of the threat model `base`.
    """
    trained = method.inverse if method is not None else None
    radius = eps if eps is not None else trained.eps if trained is not None else base.eps / 2
    if not 0 < radius < inf:
        raise UserError(f"the inverse radius ε' is {radius}: give one above 0 with --inverse-eps.")
    weight = beta if beta is not None else trained.beta if trained is not None else 1.0
    if not 0 <= weight < inf:
        raise UserError(f"--beta is {weight}: give a number from 0 on.")
    shared: dict[str, Any] = {"eps": radius, "beta": weight, "norm": base.norm if trained is None else trained.norm}
    check_radius("the inverse radius ε'", radius, shared["norm"])
    if trained is not None:
        shared["reduction"] = trained.reduction
    instance = InstanceInverse(step=radius / 2, steps=STEPS, **shared)
    universal = UniversalInverse(step=radius, **shared)
    if trained is not None and trained.eps:
        step = trained.step * (radius / trained.eps)
        if isinstance(trained, InstanceInverse):
            instance = replace(trained, step=step, **shared)
        else:
            universal = replace(trained, step=step, **shared)
    return InverseSettings(replace(base, steps=ATTACK_STEPS), instance, universal)
