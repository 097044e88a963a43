"""Tables that the paper does not have: open questions, boosters, and what each part of UIAT adds (the control)."""

from dataclasses import replace
from typing import Any

from uiat.config import AnyConfig
from uiat.methods import SingleStep
from uiat.recipes.plus import BOOSTERS, LAM, PLUS_BOOSTERS, boosted, uiat_plus
from uiat.recipes.variants import change_method
from uiat.reproduce.experiments.selection import planned
from uiat.reproduce.experiments.tables import accuracy_entries
from uiat.reproduce.scale import Scale
from uiat.reproduce.table import Entry, Table

ACCURACY_COLUMNS = ("Natural", "PGD", "Robust")
DEFAULT_UIAT = "UIAT (default)"
CHANGES: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "gradient through p": ("uiat", None, {"detach_target": False}),
    "gradient through p, λ = 1.75": ("uiat", None, {"detach_target": False, "lam": 1.75}),
    "p from running statistics": ("uiat", None, {"target_statistics": "running"}),
    "L1 as a sum": ("uiat", "inverse", {"reduction": "sum"}),
    "no momentum": ("uiat", "momentum", {"enabled": False}),
    "instance-wise, with momentum": ("iat", "momentum", {"enabled": True}),
}
"""Changes: the method, its part, and the fields."""
RADII = {"ε' halved": 0.5, "ε' doubled": 2.0}
"""ε' and its step, as multiples of the default."""


def choices(scale: Scale) -> dict[str, AnyConfig]:
    """Return UIAT, and UIAT with one choice changed at a time that the paper leaves open."""
    default = scale.config("uiat")
    runs = {DEFAULT_UIAT: default}
    for name, (method, part, fields) in CHANGES.items():
        runs[name] = change_method(scale.instead_of("uiat", method), part, **fields)
    inverse: Any = default.method.inverse
    for name, times in RADII.items():
        runs[name] = change_method(default, "inverse", eps=times * inverse.eps, step=times * inverse.step)
    return runs


def questions(scale: Scale) -> Table:
    """Return the open questions: UIAT with one choice changed at a time that the paper leaves open."""
    entries = entries_of(scale, {("", name): config for name, config in choices(scale).items()})
    title = "Open questions: UIAT with one choice changed, accuracy (%)"
    return Table("questions", title, scale, entries, ("β, γ, T and T' are in Figure S2.",), label="changed")


def plus(scale: Scale) -> Table:
    """Return the effect of boosters on each method, and `uiat-plus` with one part changed at a time."""
    baselines = {"SAT": "sat", "TRADES": "trades", "MART": "mart"}
    plain = {**baselines, "UIAT": "uiat", "one-off UIAT": "uiat-oneoff"}
    configs = {name: scale.config(method) for name, method in plain.items()}
    one_off, same = configs["one-off UIAT"], "with the boosters of uiat-plus"
    main = {("without boosters", name): run for name, run in configs.items()}
    main |= {(same, name): boosted(configs[name]) for name in baselines}
    main[same, "uiat-plus"] = uiat_plus(one_off)
    parts = {("one-off UIAT", f"{name} alone"): boosted(one_off, (name,)) for name in BOOSTERS}
    for name in PLUS_BOOSTERS:
        others = tuple(other for other in PLUS_BOOSTERS if other != name)
        parts["uiat-plus", f"without {name}"] = uiat_plus(one_off, others)
    parts["uiat-plus", "with AWP"] = uiat_plus(one_off, BOOSTERS)
    parts |= {("uiat-plus", f"λ = {lam:g}"): uiat_plus(one_off, lam=lam) for lam in (1.75, 3.5)}
    notes = (f"uiat-plus is one-off UIAT with λ = {LAM:g} and boosters: {', '.join(PLUS_BOOSTERS)}.",)
    entries = entries_of(scale, main, (*ACCURACY_COLUMNS, "AA")) + entries_of(scale, parts)
    return Table("plus", "Boosters: accuracy (%)", scale, entries, notes)


def entries_of(
    scale: Scale, runs: dict[tuple[str, str], AnyConfig], columns: tuple[str, ...] = ACCURACY_COLUMNS
) -> tuple[Entry, ...]:
    """Return the columns of runs by (section, row)."""
    return tuple(
        entry
        for (section, row), config in runs.items()
        for entry in accuracy_entries(
            scale, row, scale.data["CIFAR-10"], config, dict.fromkeys(columns, ""), section=section
        )
    )


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
    usual: Any = scale.config("uiat-oneoff").method
    if (one_off := chosen["uiat-oneoff"]) is not None and one_off.value != usual.lam:
        single = change_method(scale.single_step("n-fgsm-uiat", 8), "uiat", lam=one_off.value)
        runs |= _with_and_without(f"N-FGSM, λ = {one_off.value:g}", single)
    return runs


def _with_and_without(row: str, config: AnyConfig) -> dict[tuple[str, str], AnyConfig]:
    return {(row, WITHOUT): without_inverse(config), (row, INVERSE): config}


def control(scale: Scale) -> Table:
    """Return the effect of each part of UIAT: SAT, the KL term with p = f(x), momentum, the inverse adversary."""
    notes = ("Rows without an inverse adversary have ε' = 0, so that p = f(x); everything else is equal.",)
    title = "Control: what each part of UIAT adds, accuracy (%)"
    entries = entries_of(scale, control_runs(scale) | selected_runs(scale), CONTROL_COLUMNS)
    return Table("control", title, scale, entries, notes, label="part")
