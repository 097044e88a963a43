"""The control experiment: UIAT's parts added one at a time, with and without an inverse adversary."""

from dataclasses import replace

from uiat.config import AnyConfig
from uiat.methods import SingleStep
from uiat.reproduce.experiments.beyond import entries_of
from uiat.reproduce.scale import Scale, change_method
from uiat.reproduce.table import Table

CONTROL_COLUMNS = ("Natural", "PGD", "CW", "Robust")
KL, MOMENTUM, INVERSE = "+ KL to f(x)", "+ momentum", "+ inverse adversary"
"""The parts of UIAT, in the order in which they are added."""
NO_MOMENTUM = "inverse adversary, no momentum"


def without_inverse(config: AnyConfig) -> AnyConfig:
    """Return the run with ε' = 0, where p = f(x) and everything else is equal, random draws included."""
    method = config.method
    if isinstance(method, SingleStep):
        plug_in = replace(method.uiat, inverse=replace(method.uiat.inverse, eps=0.0))
        return change_method(config, None, uiat=plug_in)
    return change_method(config, "inverse", eps=0.0)


def control_runs(scale: Scale) -> dict[tuple[str, str], AnyConfig]:
    """Return the runs by (method, part that is added to the row above)."""
    uiat, one_off = scale.config("uiat"), scale.config("uiat-oneoff")
    single, single_uiat = scale.single_step("n-fgsm", 8), scale.single_step("n-fgsm-uiat", 8)
    plain = change_method(uiat, "momentum", enabled=False)
    return {
        ("UIAT", "SAT"): scale.config("sat"),
        ("UIAT", KL): without_inverse(plain),
        ("UIAT", MOMENTUM): without_inverse(uiat),
        ("UIAT", INVERSE): uiat,
        ("UIAT", NO_MOMENTUM): plain,
        ("UIAT (One-off)", KL): without_inverse(one_off),
        ("UIAT (One-off)", INVERSE): one_off,
        ("N-FGSM", "N-FGSM"): single,
        ("N-FGSM", KL): without_inverse(single_uiat),
        ("N-FGSM", INVERSE): single_uiat,
    }


def control(scale: Scale) -> Table:
    """Return the effect of each part of UIAT: SAT, the KL term with p = f(x), momentum, the inverse adversary."""
    notes = ("Rows without an inverse adversary have ε' = 0, so that p = f(x); everything else is equal.",)
    title = "Control: what each part of UIAT adds, accuracy (%)"
    entries = entries_of(scale, control_runs(scale), CONTROL_COLUMNS)
    return Table("control", title, scale, entries, notes, label="part")
