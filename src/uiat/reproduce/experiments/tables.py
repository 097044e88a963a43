"""Tables 1 to 6 of the paper."""

from collections.abc import Mapping
from itertools import product

from uiat.config import AnyConfig
from uiat.recipes.variants import change_method
from uiat.reproduce.cell import Cell
from uiat.reproduce.scale import Scale
from uiat.reproduce.table import Entry, EpochPasses, EpochTime, Percent, Table, paper_figure, read_figures
from uiat.reproduce.timing import Timing, timing_of

NATURAL_AND_ROBUST = ("Natural", "Robust")
TABLE1_METHODS = {
    "SAT": "sat",
    "TRADES": "trades",
    "MART": "mart",
    "HAT": "hat",
    "IAT": "iat",
    "UIAT": "uiat",
    "UIAT (One-off)": "uiat-oneoff",
}
"""The rows of Table 1: the paper's, and IAT, which it has in Tables 2 and 6 only."""
LAST = "last"
"""Weights of the last epoch. Table 5 has them: the best epoch would hide catastrophic overfitting."""
TABLE1_ATTACKS = ("Natural", "PGD", "CW", "AA")
"""The columns of Table 1."""


def strongest(scale: Scale) -> str:
    """Return the column of the strongest attack that all runs are measured with: AutoAttack, or a cheaper one."""
    return "AA" if scale.robust == scale.aa else "Robust"


def attacks_on(scale: Scale, data: str) -> dict[str, str]:
    """Return Table 1's columns for a data set, and which of the paper's each is.

    Where a scale has a cheaper attack for AutoAttack, AutoAttack itself is for CIFAR-10 alone, and comes last.
    """
    columns = {column: column for column in TABLE1_ATTACKS[:-1]} | {strongest(scale): "AA"}
    return columns | {"AA": "AA"} if data == "CIFAR-10" else columns


def table1(scale: Scale) -> Table:
    """Return Table 1, methods under three attacks: a group of columns for each data set that is measured.

    A scale that measures the last epoch has the best one for CIFAR-10 alone.
    """
    sets = ("CIFAR-10",) if scale.weights == LAST else tuple(scale.data)
    entries = _method_entries(scale, sets, TABLE1_ATTACKS, "best")
    return Table("table1", "Methods compared: natural and robust accuracy (%)", scale, entries)


def table1_last(scale: Scale) -> Table:
    """Return the same runs with the weights of the last epoch, which the paper does not report."""
    entries = _method_entries(scale, tuple(scale.data), last_columns(scale), LAST)
    notes = ("The last epoch shows robust overfitting.",)
    return Table("table1-last", "Methods compared at their last epoch: accuracy (%)", scale, entries, notes)


def last_columns(scale: Scale) -> tuple[str, ...]:
    """Return which of the paper's columns are measured at the last epoch."""
    return TABLE1_ATTACKS if scale.weights == LAST else ("Natural", "PGD")


def _method_entries(scale: Scale, sets: tuple[str, ...], columns: tuple[str, ...], weights: str) -> tuple[Entry, ...]:
    """Return the entries of Table 1 for some of the paper's columns."""
    return tuple(
        entry
        for row, method in TABLE1_METHODS.items()
        for data in sets
        for entry in table1_entries(scale, row, data, scale.config(method, data), columns, weights)
    )


def table1_entries(
    scale: Scale, row: str, data: str, config: AnyConfig, columns: tuple[str, ...], weights: str
) -> list[Entry]:
    """Return a row of Table 1 for a data set; the paper's figures are of the best epoch."""
    figures = read_figures() if weights == "best" else {}
    attacks = {ours: theirs for ours, theirs in attacks_on(scale, data).items() if theirs in columns}
    shown = {ours: figures.get(("table1", row, f"{data}/{theirs}"), "") for ours, theirs in attacks.items()}
    return accuracy_entries(scale, row, scale.data[data], config, shown, weights=weights)


def accuracy_entries(
    scale: Scale,
    row: str,
    group: str,
    config: AnyConfig | None,
    columns: Mapping[str, str],
    *,
    section: str = "",
    weights: str | None = None,
) -> list[Entry]:
    """Return a row of accuracies of a run; `columns` has the paper's figure for each of them, or nothing."""
    cell = None if config is None else Cell(config)
    return [
        Entry(row, group, column, cell, Percent(scale.attacked(column, weights)), figure, section)
        for column, figure in columns.items()
    ]


def _natural_and_robust(table: str, row: str, prefix: str = "") -> dict[str, str]:
    """Return the paper's figures of both columns in a row."""
    return {column: paper_figure(table, row, prefix + column) for column in NATURAL_AND_ROBUST}


TABLE2_METHODS = {
    "Natural Training": "natural",
    "TRADES": "trades",
    "HAT": "hat",
    "IAT": "iat",
    "UIAT": "uiat",
    "UIAT (One-off)": "uiat-oneoff",
}
"""The rows of Table 2."""


def network_timings(scale: Scale) -> dict[str, Timing]:
    """Return the benchmark of Table 2 on each of the paper's networks."""
    return {network: scale.timing(network, tuple(TABLE2_METHODS.values())) for network in scale.networks}


def table2(scale: Scale) -> Table:
    """Return Table 2: time of a training epoch, and the passes that it is made of, for three networks."""
    timings, entries, digits = network_timings(scale), [], 2 if scale.name == "paper" else 3
    for row, method in TABLE2_METHODS.items():
        for network, ours in scale.networks.items():
            reading, figure = EpochTime(timings[network], method, 60.0, digits), paper_figure("table2", row, network)
            entries.append(Entry(row, "minutes an epoch", ours, None, reading, figure, best="least"))
        passes = EpochPasses(scale.config(method))
        entries.append(Entry(row, "passes an image", "all networks", None, passes, best="least"))
    notes = (
        f"Times: steps of all methods, interleaved in one process, {scale.rounds} repetitions, times the "
        "steps of an epoch. Passes: forwards, backwards to the input and backwards to the weights, each 1, of the "
        "network that is trained; HAT's helper is in its time alone.",
    )
    return Table("table2", "Time of a training epoch", scale, tuple(entries), notes, timings=tuple(timings.values()))


def table3(scale: Scale) -> Table:
    """Return Table 3, training and attacking at larger radii: a section for each ε."""
    entries: list[Entry] = []
    for levels in scale.larger_radii:
        for row in ("TRADES", "HAT", "UIAT", "UIAT (One-off)"):
            config, section = scale.larger(TABLE1_METHODS[row], levels), f"ε = {scale.show_radius(levels)}"
            figures = _natural_and_robust("table3", f"{levels}/255/{row}")
            entries += accuracy_entries(scale, row, scale.data["CIFAR-10"], config, figures, section=section)
    notes = ("Each run is trained and attacked at its ε; α and ε' are those of the usual ε.",)
    return Table("table3", "Training at larger ε: accuracy (%)", scale, tuple(entries), notes)


TABLE4_METHODS = {"Rebuffi et al.": "trades", "HAT": "hat", "UIAT": "uiat", "UIAT (One-off)": "uiat-oneoff"}
"""The rows of Table 4."""
FOOTNOTE = "HAT's figure for CIFAR-100 with WRN-28-10 is the one that HAT's own authors give for WRN-34-10."


def table4(scale: Scale) -> Table:
    """Return Table 4, training with a million generated images: a section for each data set and network."""
    entries: list[Entry] = []
    for data, network in product(("CIFAR-10", "CIFAR-100"), ("PRN-18", "WRN-28-10")):
        for row, method in TABLE4_METHODS.items():
            config = scale.generated(method, data, network)
            ours = (data, network) if config is None else (scale.data[data], scale.generated_networks[network])
            figures = _natural_and_robust("table4", f"{data}/{network}/{row}")
            entries += accuracy_entries(scale, row, "", config, figures, section=", ".join(ours))
    notes = [FOOTNOTE]
    if scale.name == "smoke":
        notes.append("No generated digits: training images, shifted and with noise, stand in for them.")
    return Table("table4", "Training with generated data: accuracy (%)", scale, tuple(entries), tuple(notes))


TABLE5_METHODS = {"N-FGSM": "n-fgsm", "RS-FGSM": "rs-fgsm", "GradAlign": "gradalign"}


def table5(scale: Scale) -> Table:
    """Return Table 5, single-step methods with and without UIAT: a section for each method."""
    names = tuple(variant for method in TABLE5_METHODS.values() for variant in (method, f"{method}-uiat"))
    timing = timing_of(scale.single_step("n-fgsm", 8), names, scale.rounds)
    entries: list[Entry] = []
    for name, method in TABLE5_METHODS.items():
        for row, variant in ((name, method), (f"{name} + UIAT", f"{method}-uiat")):
            for levels in scale.single_step_radii:
                config, group = scale.single_step(variant, levels), f"ε = {scale.show_radius(levels)}"
                figures = _natural_and_robust("table5", row, f"{levels}/255/")
                entries += accuracy_entries(scale, row, group, config, figures, section=name, weights=LAST)
            seconds, figure = EpochTime(timing, variant, 1.0), paper_figure("table5", row, "Time(s)")
            passes = EpochPasses(scale.single_step(variant, 8))
            entries.append(Entry(row, "an epoch", "seconds", None, seconds, figure, name, "least"))
            entries.append(Entry(row, "an epoch", "passes an image", None, passes, "", name, "least"))
    notes = (
        "Catastrophic overfitting would show at the last epoch.",
        f"Seconds: steps of all methods, interleaved in one process, {scale.rounds} repetitions.",
    )
    title = "Single-step methods with and without UIAT: accuracy (%)"
    return Table("table5", title, scale, tuple(entries), notes, timings=(timing,), name_sections=False)


ABLATED_PARTS = ("UAG", "FR", "IAM")
"""Of Table 6: universal generation, the feature-level term, and momentum."""


def components(row: str) -> tuple[bool, bool, bool]:
    """Return which components a row of the paper's Table 6 has."""
    uag, fr, iam = (paper_figure("table6", row, name) == "1" for name in ABLATED_PARTS)
    return uag, fr, iam


def ablated(scale: Scale, row: str) -> AnyConfig:
    """Return the run of a row of Table 6; row 5 is the UIAT of all other tables, and all rows share its settings."""
    uag, fr, iam = components(row)
    config = scale.instead_of("uiat", "uiat" if uag else "iat")
    if not fr:
        config = change_method(config, "inverse", beta=0.0)
    return change_method(config, "momentum", enabled=iam)


def table6(scale: Scale) -> Table:
    """Return Table 6: the contribution of each component."""
    entries: list[Entry] = []
    columns = {"Natural": "Natural", "PGD-20": "PGD-20", "Robust": "AA"}
    for row in "12345":
        present = [name for name, has in zip(ABLATED_PARTS, components(row), strict=True) if has]
        label = f"{row}: {' + '.join(present) or 'none (instance-wise)'}"
        figures = {ours: paper_figure("table6", row, theirs) for ours, theirs in columns.items()}
        entries += accuracy_entries(scale, label, scale.data["CIFAR-10"], ablated(scale, row), figures)
    return Table("table6", "Ablation of UIAT's components: accuracy (%)", scale, tuple(entries), label="components")
