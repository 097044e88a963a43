"""Pairs of methods on the results page: which is above the other, by how much, and whether `uiat-plus` is ahead."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from uiat.config import AnyConfig
from uiat.evaluation.intervals import Difference
from uiat.recipes.plus import boosted, uiat_plus
from uiat.reproduce.cell import Cell, Store, seed_stores
from uiat.reproduce.claims import Comparison, Finding, show_finding
from uiat.reproduce.claims_list import MARGIN
from uiat.reproduce.evidence import more_accurate
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.experiments.beyond import ACCURACY_COLUMNS, DEFAULT_UIAT, choices
from uiat.reproduce.experiments.sweeps import FRONTS, front_cells
from uiat.reproduce.experiments.tables import TABLE1_METHODS, attacks_on
from uiat.reproduce.measures import Attacked
from uiat.reproduce.scale import Scale

ATTACK_NAMES = {"Natural": "Natural", "PGD": "PGD-20", "CW": "CW", "Robust": "APGD", "AA": "AutoAttack"}
"""Columns of the page, as its prose names them: APGD is APGD-CE + APGD-T."""
OURS, BASELINES = ("UIAT", "UIAT (One-off)"), ("SAT", "TRADES")
NO_DIFFERENCE = "no significant difference"
BOOSTED = (*BASELINES, "MART")
"""The baselines that have runs with the boosters of `uiat-plus`."""
COMPARED = (*(("UIAT", name) for name in TABLE1_METHODS if name not in OURS), *((OURS[1], name) for name in BASELINES))
"""The pairs of Table 1's methods that the page compares."""
Pair = tuple[AnyConfig, AnyConfig]
SAT_FRONT = "SAT (ε)"


@dataclass(frozen=True)
class Published:
    """Finished runs: their folder and their scale."""

    out: Path
    scale: Scale
    seeds: int
    """How many seeds to look for, from 0 on."""
    least: int = 2
    """How many of them a comparison needs before the page states who is ahead."""

    def difference(self, pair: Pair, column: str, weights: str | None = None) -> Difference | None:
        """Return by how much the first of a pair is more accurate, over the seeds at which both are finished."""
        measure = self.scale.attacked(column, weights)
        return more_accurate(pair[:1], pair[1:], measure)(self.out, self.seeds)


def side(found: Difference | None) -> str:
    """Say on which side of 0 a difference is; empty where it is not measured, or at one seed only."""
    if found is None or found.one_seed:
        return ""
    return "above" if found.low > 0 else "below" if found.high < 0 else NO_DIFFERENCE


def in_short(runs: Published) -> list[str]:
    """Say on which side each difference of Table 1 is, a line for each pair of methods; none before they have runs."""
    lines = []
    for data, name in runs.scale.data.items():
        columns = list(attacks_on(runs.scale, data))
        pairs = {names: _pair(runs.scale, *names, data) for names in COMPARED}
        own = [line for names, pair in pairs.items() if (line := _sides(runs, names, pair, columns))]
        if data == "CIFAR-10":
            own += [
                line
                for names, pair in larger_pairs(runs).items()
                if (line := _sides(runs, names, pair, ACCURACY_COLUMNS))
            ]
        lines += [f"On {name.removeprefix(f'{runs.scale.name}: ')}:", "", *own, ""] if own else []
    head = "In short, in points, by paired 95 % intervals over seeds and test images."
    if runs.scale.robust != runs.scale.aa:
        head += f" APGD: {runs.scale.robust}, two attacks of AutoAttack, on {runs.scale.robust_images:,} images."
    plus = [f"{line}\n" for line in plus_verdict(runs)]
    return [head, "", *lines, *plus] if lines else []


def _sides(runs: Published, names: tuple[str, str], pair: Pair, columns: Sequence[str]) -> str:
    by_side: dict[str, list[str]] = {"above": [], "below": [], NO_DIFFERENCE: []}
    for column in columns:
        found = runs.difference(pair, column)
        if found is not None and (where := side(found)):
            interval = f"95 % CI [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"
            shown = interval if where == NO_DIFFERENCE else f"{100 * found.value:+.2f}"
            by_side[where].append(f"{ATTACK_NAMES[column]} ({shown})")
    text = "; ".join(f"{where}: {', '.join(columns)}" for where, columns in by_side.items() if columns)
    return f"- {names[0]} against {names[1]}: {text}." if text else ""


def _pair(scale: Scale, ours: str, theirs: str, data: str) -> Pair:
    return scale.config(TABLE1_METHODS[ours], data), scale.config(TABLE1_METHODS[theirs], data)


def differences(runs: Published) -> list[str]:
    """Compare UIAT and one-off UIAT with other methods on every data set: tables of differences with intervals."""
    lines = []
    for data, name in runs.scale.data.items():
        pairs = {" − ".join(names): _pair(runs.scale, *names, data) for names in COMPARED}
        columns = [(column, weights) for weights in ("last", "best") for column in attacks_on(runs.scale, data)]
        lines += _compared(runs, f"## Differences between methods, {name}", pairs, columns)
    return lines


def nearness(runs: Published) -> list[str]:
    """State how much lower AutoAttack is than the cheaper attack, over the runs that have both; nothing before."""
    robust, autoattack = runs.scale.attacked("Robust"), runs.scale.attacked("AA")
    if robust == autoattack:
        return []
    names: dict[Cell, str] = {}
    for table in (EXPERIMENTS[name](runs.scale) for name in ("table1-last", "plus")):
        for entry in table.entries:  # type: ignore[union-attr]
            if entry.column == "AA" and entry.cell is not None:
                names.setdefault(entry.cell, ", ".join(filter(None, (entry.row, entry.section))))
    gaps = {
        name: [_accuracy(store, robust) - _accuracy(store, autoattack) for store in stores]
        for cell, name in names.items()
        if (stores := [s for s in seed_stores(cell, runs.out, runs.seeds, autoattack) if s.has(robust)])
    }
    if not gaps:
        return []
    points = [100 * gap for own in gaps.values() for gap in own]
    text = (
        f"How close {robust.attack} is to AutoAttack, on the same images and weights: AutoAttack's accuracy is lower "
        f"by {mean(points):.2f} points on average, and by {max(points):.1f} at most. Runs that have both: "
    )
    return [text + ", ".join(f"{name} ({len(own)})" for name, own in gaps.items()) + ".", ""]


def _accuracy(store: Store, measure: Attacked) -> float:
    return float(store.tensors(measure)["correct"].double().mean())


def _compared(
    runs: Published, title: str, pairs: dict[str, Pair], columns: Sequence[tuple[str, str]], text: Sequence[str] = ()
) -> list[str]:
    """Return a table of differences without the rows and columns that have none; nothing where none are left."""
    found = {
        place: {label: difference for label, pair in pairs.items() if (difference := runs.difference(pair, *place))}
        for place in columns
    }
    places = [place for place, own in found.items() if own]
    if not places:
        return []
    heads = [f"{ATTACK_NAMES[column]}, {weights} epoch" for column, weights in places]
    lines = [title, "", *text, "|  | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for label in pairs:
        own = [Finding(Comparison("", None), found[place].get(label)) for place in places]
        if any(finding.difference for finding in own):
            shown = (" ".join(show_finding(finding)) if finding.difference else "–" for finding in own)
            lines.append(f"| {label} | {' | '.join(shown)} |")
    note = (
        "By how many points the first is above the second, with paired 95 % intervals over the seeds at which both are "
        "finished and over test images (one seed: over images alone). AutoAttack and APGD: 1,000 images; the rest: all."
    )
    return [*lines, "", note, ""]


def answers(runs: Published) -> list[str]:
    """Compare UIAT with one choice changed with the default UIAT, where the changed run is finished."""
    configs = choices(runs.scale)
    default = configs.pop(DEFAULT_UIAT)
    finished = {name: config for name, config in configs.items() if seed_stores(Cell(config), runs.out, runs.seeds)}
    columns = [(column, runs.scale.weights) for column in ACCURACY_COLUMNS]
    pairs = {f"{name} − default": (config, default) for name, config in finished.items()}
    return _compared(runs, "## Open questions: differences", pairs, columns)


def front_verdict(runs: Published) -> list[str]:
    """Say whether a front lies above another, and compare UIAT with SAT trained at a larger ε; nothing before."""
    points = [
        (line, cell.labels[0], cell.config)
        for line in FRONTS
        for cell in front_cells(runs.scale, line)
        if len(seed_stores(cell, runs.out, runs.seeds, runs.scale.attacked("Robust"))) >= runs.least
    ]
    if len({line for line, _, _ in points}) < 2:
        return []
    ahead = [
        f"{first} above {second}"
        for own, first, ours in points
        for other, second, theirs in points
        if own != other and _is_above(runs, (ours, theirs))
    ]
    found = "; ".join(ahead) or "none, so no front is shown to lie above another"
    names = "; ".join(name for _, name, _ in points)
    text = (
        "Points of one front that are above a point of another: more robust under APGD, and in natural accuracy not "
        f"lower by {100 * MARGIN:g} point or more, each by its paired 95 % interval: {found}. Compared, with "
        f"{runs.least} seeds or more each: {names}."
    )
    pairs = {" − ".join(names): pair for names, pair in larger_pairs(runs).items()}
    columns = [(column, runs.scale.weights) for column in ACCURACY_COLUMNS]
    return [text, "", *_compared(runs, "## UIAT and SAT trained at a larger ε", pairs, columns)]


def _is_above(runs: Published, pair: Pair) -> bool:
    natural, robust = (runs.difference(pair, column) for column in ("Natural", "Robust"))
    return side(robust) == "above" and natural is not None and natural.low > -MARGIN


def larger_pairs(runs: Published) -> dict[tuple[str, str], Pair]:
    """Pair UIAT and one-off UIAT with SAT trained at a larger ε, by their names."""
    default = runs.scale.config("sat")
    cells = [cell for cell in front_cells(runs.scale, SAT_FRONT) if cell.config != default]
    ours = {name: runs.scale.config(TABLE1_METHODS[name]) for name in OURS}
    return {(name, cell.labels[0]): (own, cell.config) for cell in cells for name, own in ours.items()}


def plus_pairs(runs: Published) -> dict[str, Pair]:
    """Pair `uiat-plus` with UIAT, one-off UIAT and baselines that have its boosters; empty before it has runs."""
    scale = runs.scale
    ours = uiat_plus(scale.config("uiat-oneoff"))
    if not seed_stores(Cell(ours), runs.out, runs.seeds):
        return {}
    others = {name: scale.config(TABLE1_METHODS[name]) for name in OURS}
    others |= {f"{name} with the same boosters": boosted(scale.config(TABLE1_METHODS[name])) for name in BOOSTED}
    return {f"uiat-plus − {name}": (ours, config) for name, config in others.items()}


def plus_verdict(runs: Published) -> list[str]:
    """State whether `uiat-plus` is ahead of all it is compared with; nothing before enough runs are finished."""
    judged = [_judge(runs, pair) for pair in plus_pairs(runs).values()]
    ahead = [robust == "above" and natural in ("above", NO_DIFFERENCE) for robust, natural in judged]
    if judged and all(ahead):
        return ["`uiat-plus` is more robust than UIAT and baselines with its boosters, at no loss of natural accuracy."]
    if any(robust and natural and not won for (robust, natural), won in zip(judged, ahead, strict=True)):
        return [
            "Nothing that was tried is shown to beat UIAT, and baselines with the same boosters, in robust accuracy at "
            "no loss of natural accuracy."
        ]
    return []


def beyond(runs: Published) -> list[str]:
    """Compare `uiat-plus` with the others: the verdict, one line for each pair, and a table of differences."""
    pairs = plus_pairs(runs)
    text = [f"- {name}: {_describe_sides(*_judge(runs, pair))}" for name, pair in pairs.items()]
    columns = [(column, runs.scale.weights) for column in (*ACCURACY_COLUMNS, "AA")]
    return _compared(runs, "## uiat-plus", pairs, columns, [*plus_verdict(runs), "", *text, ""])


def _judge(runs: Published, pair: Pair) -> tuple[str, str]:
    """Return on which side a pair's robust (AutoAttack's if both have enough seeds) and natural accuracies are."""
    known = (runs.difference(pair, column) for column in ("AA", "Robust"))
    robust = next((found for found in known if found is not None and found.seeds >= runs.least), None)
    return side(robust), side(runs.difference(pair, "Natural"))


def _describe_sides(robust: str, natural: str) -> str:
    if not robust or not natural:
        return "undecided: too few seeds."
    return f"robust accuracy: {robust}; natural accuracy: {natural}."
