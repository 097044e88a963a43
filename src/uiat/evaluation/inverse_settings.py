"""With which settings inverse examples are made: a run's own where its method has some, the paper's else."""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

from uiat.attacks import PGD
from uiat.errors import UserError
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


def own_inverse(method: object) -> InstanceInverse | UniversalInverse | None:
    """Return the inverse of a method (IAT, UIAT, one-off, or a single-step method with the plug-in), if it has one."""
    plug_in = getattr(method, "uiat", None)
    holder = plug_in if getattr(plug_in, "enabled", False) else method
    found = getattr(holder, "inverse", None)
    return found if isinstance(found, InstanceInverse | UniversalInverse) else None


def inverse_settings(
    method: object, base: PGD, *, eps: float | None = None, beta: float | None = None
) -> InverseSettings:
    """Settle ε', the steps and β, from a run's method, the threat model `base`, and what is asked for otherwise."""
    own = own_inverse(method)
    radius = eps if eps is not None else own.eps if own is not None else base.eps / 2
    if not 0 < radius < inf:
        raise UserError(f"the inverse radius ε' is {radius}: give one above 0 with --inverse-eps.")
    weight = beta if beta is not None else own.beta if own is not None else 1.0
    if not 0 <= weight < inf:
        raise UserError(f"--beta is {weight}: give a number from 0 on.")
    shared: dict[str, Any] = {"eps": radius, "beta": weight, "norm": base.norm if own is None else own.norm}
    check_radius("the inverse radius ε'", radius, shared["norm"])
    if own is not None:
        shared["reduction"] = own.reduction
    instance = InstanceInverse(step=radius / 2, steps=STEPS, **shared)
    universal = UniversalInverse(step=radius, **shared)
    if own is not None and own.eps:
        step = own.step * (radius / own.eps)
        if isinstance(own, InstanceInverse):
            instance = replace(own, step=step, **shared)
        else:
            universal = replace(own, step=step, **shared)
    return InverseSettings(replace(base, steps=ATTACK_STEPS), instance, universal)
