"""The control experiment: UIAT's parts added one at a time, with and without an inverse adversary."""

from dataclasses import replace
from typing import Any

from uiat.config import AnyConfig
from uiat.methods import SingleStep
from uiat.reproduce.experiments.beyond import entries_of
from uiat.reproduce.experiments.selection import planned
from uiat.reproduce.scale import Scale, change_method
from uiat.reproduce.table import Table

CONTROL_COLUMNS = ("Natural", "PGD", "CW", "Robust")
KL, MOMENTUM, INVERSE = "+ KL to f(x)", "+ momentum", "+ inverse adversary"
"""The parts of UIAT, in the order in which they are added."""
NO_MOMENTUM, WITHOUT = "inverse adversary, no momentum", "no inverse adversary"


def without_inverse(config: AnyConfig) -> AnyConfig:
    """Return the run with ε' = 0, where p = f(x) and everything else is equal, random draws included."""
    method = config.method
    if isinstance(method, SingleStep):
        plug_in = replace(method.uiat, inverse=replace(method.uiat.inverse, eps=0.0))
        return change_method(config, None, uiat=plug_in)
    return change_method(config, "inverse", eps=0.0)


def control_runs(scale: Scale) -> dict[tuple[str, str], AnyConfig]:
    """Return the runs with the paper's λ by (method, part that is added to the row above)."""
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


def selected_runs(scale: Scale) -> dict[tuple[str, str], AnyConfig]:
    """Return the runs with and without an inverse adversary at the settings that `selection` found, once it is done.

    N-FGSM + UIAT, which has no selection of its own, takes the λ of one-off UIAT.
    """
    chosen = {method: planned(scale, method)[1] if scale.name == "cpu" else None for method in ("uiat", "uiat-oneoff")}
    runs: dict[tuple[str, str], AnyConfig] = {}
    for row, method in (("UIAT", "uiat"), ("UIAT (One-off)", "uiat-oneoff")):
        found = chosen[method]
        if found is not None and found.config != scale.config(method):
            runs |= _with_and_without(f"{row}, selected: {found.label}", found.config)
    default: Any = scale.config("uiat-oneoff").method
    if (one_off := chosen["uiat-oneoff"]) is not None and one_off.value != default.lam:
        single: Any = scale.single_step("n-fgsm-uiat", 8)
        plug_in = replace(single.method.uiat, lam=one_off.value)
        runs |= _with_and_without(f"N-FGSM, λ = {one_off.value:g}", change_method(single, None, uiat=plug_in))
    return runs


def _with_and_without(row: str, config: AnyConfig) -> dict[tuple[str, str], AnyConfig]:
    return {(row, WITHOUT): without_inverse(config), (row, INVERSE): config}


def control(scale: Scale) -> Table:
    """Return the effect of each part of UIAT: SAT, the KL term with p = f(x), momentum, the inverse adversary."""
    notes = ("Rows without an inverse adversary have ε' = 0, so that p = f(x); everything else is equal.",)
    title = "Control: what each part of UIAT adds, accuracy (%)"
    entries = entries_of(scale, control_runs(scale) | selected_runs(scale), CONTROL_COLUMNS)
    return Table("control", title, scale, entries, notes, label="part")
