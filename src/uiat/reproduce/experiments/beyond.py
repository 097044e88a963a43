"""Tables that the paper does not have: open questions, boosters, and the tuning budget of the `cpu` scale."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uiat.config import AnyConfig
from uiat.recipes.plus import BOOSTERS, LAM, PLUS_BOOSTERS, boosted, uiat_plus
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.experiments.tables import TABLE1_METHODS
from uiat.reproduce.measures import Measure
from uiat.reproduce.scale import Scale, change_method, tuned
from uiat.reproduce.table import Entry, Percent, Table

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
    group = scale.data["CIFAR-10"]
    return tuple(
        Entry(row, group, column, Cell(config), Percent(scale.attacked(column)), section=section)
        for (section, row), config in runs.items()
        for column in columns
    )


TUNED_FIELDS = {"trades": "omega", "mart": "beta", "hat": "beta", "iat": "lam", "uiat": "lam", "uiat-oneoff": "lam"}
"""The weight of a method's second term; SAT has none."""


@dataclass(frozen=True)
class Validated:
    """Accuracy of the best epoch on the validation split, in percent."""

    field: str
    digits: int = 2
    measure: Measure | None = None

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        """Read it from the card of the first seed."""
        return [] if cell is None else [100 * store.card["best"][self.field] for store in seed_stores(cell, out, 1)]


def candidates(scale: Scale, method: str) -> dict[str, AnyConfig]:
    """Return the runs of a method: the default, twice the rate, and half the weight at the better of the two rates.

    The better rate is the one in `scale.tuned`. A method without a weight tries half the rate instead.
    """
    config = scale.runs(method, "CIFAR-10", "ResNet-18")
    lr, field = config.train.schedule.lr, TUNED_FIELDS.get(method)
    better = scale.tuned.get(method, {}).get("lr", lr)
    third = {"lr": lr / 2} if field is None else {"lr": better, field: getattr(config.method, field) / 2}
    return {setting_of(run): run for run in (config, tuned(config, {"lr": 2 * lr}), tuned(config, third))}


def setting_of(config: AnyConfig) -> str:
    """Return the learning rate and the weight of a run as text."""
    symbols = {"omega": "ω", "beta": "β", "lam": "λ"}
    weights = {sign: getattr(config.method, name, None) for name, sign in symbols.items()}
    return ", ".join(
        f"{sign} {value:g}" for sign, value in {"lr": config.train.schedule.lr, **weights}.items() if value
    )


def tuning(scale: Scale) -> Table:
    """Return the tuning budget, a section for each method; only the `cpu` scale is tuned, the paper gives its own."""
    entries = [
        Entry(row, "validation", column, Cell(config) if scale.name == "cpu" else None, Validated(field), section=name)
        for name, method in TABLE1_METHODS.items()
        for row, config in candidates(scale, method).items()
        for column, field in (("natural", "val_natural"), ("robust", "val_robust"))
    ]
    notes = (
        "Seed 0; accuracy of the best epoch on the validation split, robust under the validation attack. The "
        "run with the highest robust accuracy gives the setting of all other tables at this scale.",
    )
    title = "Tuning budget: three runs a method"
    return Table("tuning", title, scale, tuple(entries), notes, label="setting", one_seed=True)
