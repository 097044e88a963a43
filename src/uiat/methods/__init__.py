"""Training methods: attack × target × terms, with hyper-parameters in frozen dataclasses."""

from uiat.attacks import NFGSM, RSFGSM
from uiat.errors import UserError, unknown
from uiat.methods.baselines import HAT, MART, SAT, TRADES, Natural
from uiat.methods.inverse_training import IAT, UIAT, UIATOneOff
from uiat.methods.method import LossOf, Method, MethodConfig
from uiat.methods.single_step_training import GradAlign, SingleStep, UIATPlugIn

METHODS: dict[str, MethodConfig] = {
    "natural": Natural(),
    "sat": SAT(),
    "trades": TRADES(),
    "mart": MART(),
    "hat": HAT(),
    "iat": IAT(),
    "uiat": UIAT(),
    "uiat-oneoff": UIATOneOff(),
    "rs-fgsm": SingleStep(RSFGSM()),
    "n-fgsm": SingleStep(NFGSM()),
    "gradalign": GradAlign(),
    "rs-fgsm-uiat": SingleStep(RSFGSM(), UIATPlugIn(enabled=True)),
    "n-fgsm-uiat": SingleStep(NFGSM(), UIATPlugIn(enabled=True)),
    "gradalign-uiat": GradAlign(uiat=UIATPlugIn(enabled=True)),
}

DESCRIPTIONS: dict[str, str] = {
    "natural": "no attack: CE(f(x), y)",
    "sat": "standard adversarial training (PGD-AT): CE(f(x̂), y)",
    "trades": "CE(f(x), y) + 6·KL(f(x) ‖ f(x̂))",
    "mart": "boosted CE(f(x̂), y) + 5·KL(f(x) ‖ f(x̂)) weighted towards misclassified samples",
    "hat": "TRADES' terms + a naturally trained helper's labels beyond x̂",
    "iat": "CE(f(x̂), y) + λ·KL(f(x̌) ‖ f(x̂)), an inverse adversary x̌ for each sample",
    "uiat": "IAT with a universal inverse perturbation for each class, and momentum on p",
    "uiat-oneoff": "UIAT with inverse adversaries in a single epoch T'",
    "rs-fgsm": "single step of 1.25 ε from a random start",
    "n-fgsm": "single step of ε from strong noise, not projected",
    "gradalign": "single step + gradient alignment (double backward)",
    "rs-fgsm-uiat": "RS-FGSM + λ·KL to a one-off universal inverse target",
    "n-fgsm-uiat": "N-FGSM + λ·KL to a one-off universal inverse target: cheap, try it first",
    "gradalign-uiat": "GradAlign + λ·KL to a one-off universal inverse target",
}


def get_method(name: str) -> MethodConfig:
    """Return the default configuration of a registered method."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    check_method(name, METHODS[name])
    return METHODS[name]


def check_method(name: str, method: object) -> None:
    """Raise a `UserError` if a registered object is not a `MethodConfig`."""
    if not isinstance(method, MethodConfig):
        raise UserError(
            f"the method {name!r} is not a MethodConfig: derive its dataclass from uiat.methods.MethodConfig, "
            "which has defaults for everything except `build`."
        )


__all__ = [
    "DESCRIPTIONS",
    "HAT",
    "IAT",
    "MART",
    "METHODS",
    "SAT",
    "TRADES",
    "UIAT",
    "GradAlign",
    "LossOf",
    "Method",
    "MethodConfig",
    "Natural",
    "SingleStep",
    "UIATOneOff",
    "UIATPlugIn",
    "check_method",
    "get_method",
]
