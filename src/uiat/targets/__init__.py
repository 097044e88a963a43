"""Targets: the distribution p that the prediction on x̂ is pulled towards."""

from uiat.targets.instance import InstanceInverse, InstanceInverseTarget
from uiat.targets.remembered import Momentum, MomentumTarget, OneOff, OneOffTarget, PredictionTable
from uiat.targets.target import CleanTarget, Target
from uiat.targets.universal import UniversalInverse, UniversalInverseTarget

__all__ = [
    "CleanTarget",
    "InstanceInverse",
    "InstanceInverseTarget",
    "Momentum",
    "MomentumTarget",
    "OneOff",
    "OneOffTarget",
    "PredictionTable",
    "Target",
    "UniversalInverse",
    "UniversalInverseTarget",
]
