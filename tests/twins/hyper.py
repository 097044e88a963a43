"""The hyper-parameters of every twin: the paper's, as plain dicts."""

from .basics import HP

_PGD: HP = {
    "eps": 8 / 255,
    "step": 2 / 255,
    "steps": 10,
    "start": "uniform",
    "norm": "linf",
    "crafting": "eval",
}
_GAUSSIAN: HP = {**_PGD, "start": "gaussian"}
_INVERSE: HP = {
    "smoothing": 0.0,
    "running": False,
    "lam": 3.5,
    "beta": 1.0,
    "l1": "mean",
    "inv_eps": 4 / 255,
    "detach_target": True,
}
_UNIVERSAL: HP = {**_INVERSE, "inv_step": 4 / 255}
_MOMENTUM: HP = {"gamma": 0.9, "momentum_start": 0.75}
_ONE_OFF: HP = {**_UNIVERSAL, "one_off_at": 0.8, "detach_clean": True}
_RS: HP = {"eps": 8 / 255, "alpha": 1.25, "crafting": "eval"}
_N: HP = {"eps": 8 / 255, "alpha": 1.0, "noise": 2.0, "crafting": "eval"}
_ALIGN: HP = {**_RS, "lam_align": 0.2}

DEFAULTS: dict[str, HP] = {
    "natural": {},
    "sat": {**_PGD, "smoothing": 0.0},
    "trades": {**_GAUSSIAN, "lam": 6.0},
    "mart": {**_GAUSSIAN, "lam": 5.0, "smoothing": 0.0},
    "hat": {**_GAUSSIAN, "lam": 2.5, "lam_helper": 0.5, "helper": None},
    "iat": {**_PGD, **_INVERSE, "inv_step": 2 / 255, "inv_steps": 5, "momentum": False, **_MOMENTUM},
    "uiat": {**_PGD, **_UNIVERSAL, "momentum": True, **_MOMENTUM},
    "uiat_one_off": {**_PGD, **_ONE_OFF},
    "rs_fgsm": _RS,
    "n_fgsm": _N,
    "grad_align": _ALIGN,
    "rs_fgsm_uiat": {**_RS, **_ONE_OFF, "beta": 0.0},
    "n_fgsm_uiat": {**_N, **_ONE_OFF, "beta": 0.0},
    "grad_align_uiat": {**_ALIGN, **_ONE_OFF, "beta": 0.0},
}


def hp_for(name: str, **changes: object) -> HP:
    """The hyper-parameters of a twin, with some of them changed."""
    unknown = set(changes) - set(DEFAULTS[name])
    if unknown:
        raise KeyError(f"{name} has no {sorted(unknown)}")
    return {**DEFAULTS[name], **changes}
