"""The table of `uiat compare`: runs that differ only in their seed are one row, with mean and standard deviation."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import torch

from uiat.escaping import markdown
from uiat.evaluation.intervals import Difference, Paired, crossing, paired
from uiat.report.page.comparison import (
    HEADINGS,
    Row,
    RunComparison,
    cells,
    differences,
    paired_test,
    percent,
    setting_key,
)

SEED_SUFFIX = re.compile(r"[-_]?(s|seed)\d+(-[0-9a-f]{10})?$")
"""The part of a run's name that states its seed, and its key if `uiat reproduce` named it."""


@dataclass(frozen=True)
class SeedGroup:
    """A row of the table: one run, or several that differ only in their seed."""

    name: str
    """The name of the run; of several the name without the seed, or that of the first, and their number."""
    rows: tuple[Row, ...]
    paired: Paired | None = None
    """Test against the best row, on the same images; `None` for the best, and without images or seeds in common."""
    note: str = ""
    """A caveat about the test, if it is not a note of a run."""

    @property
    def robust(self) -> float:
        """The mean robust accuracy; −1 if it was not measured."""
        return mean(row.robust.accuracy if row.robust else -1.0 for row in self.rows)

    def cells(self) -> list[str]:
        """Return the cells of the row, in the order of `HEADINGS`."""
        return cells(self.name, self.rows, self.paired)


def group_seeds(comparison: RunComparison) -> list[SeedGroup]:
    """Return the rows of the table, the best first; runs without a robust accuracy have a row each."""
    sets: dict[object, list[Row]] = {}
    for k, row in enumerate(comparison.rows):
        same = (setting_key(row.run), row.run.data, row.robust.images) if row.robust else k
        if any(_seed(other) == _seed(row) for other in sets.get(same, [])):
            same = k  # a copy of a run
        sets.setdefault(same, []).append(row)
    rows = [tuple(sorted(each, key=_seed)) for each in sets.values()]
    names = [_common_name(each) for each in rows]
    first = [f"{each[0].run.name}, {len(each)} seeds" for each in rows]
    groups = [
        SeedGroup(name if names.count(name) == 1 else other, each)
        for name, other, each in zip(names, first, rows, strict=True)
    ]
    groups.sort(key=lambda group: -group.robust)  # stable: single runs keep their order
    return [groups[0], *(_tested(group, groups[0]) for group in groups[1:])] if groups else []


def _common_name(rows: Sequence[Row]) -> str:
    names = [row.run.name for row in rows]
    if len(names) == 1:
        return names[0]
    common = {SEED_SUFFIX.sub("", name) for name in names}
    return f"{names[0] if len(common) > 1 else common.pop() or names[0]}, {len(names)} seeds"


def _seed(row: Row) -> int:
    return int(row.run.config.seed)


def _tested(group: SeedGroup, best: SeedGroup) -> SeedGroup:
    """Return the row with its test against the best: McNemar's for two runs, else over seeds and images."""
    if len(group.rows) == len(best.rows) == 1:
        return replace(group, paired=paired_test(group.rows[0].robust, best.rows[0].robust)[0])
    theirs = {_seed(row): row.robust for row in best.rows}
    pairs = [(row.robust, theirs[_seed(row)]) for row in group.rows if _seed(row) in theirs]
    if not pairs and group.rows[0].robust is not None:
        return replace(group, note="no seed in common with the first row: no paired test")
    values = []
    for ours, other in pairs:
        reason = paired_test(ours, other)[1]
        if reason or ours is None or other is None or ours.verdicts is None or other.verdicts is None:
            return replace(group, note=reason)
        values.append(ours.verdicts.double() - other.verdicts.double())
    if not values:
        return group
    found = paired(torch.stack(values))
    note = "" if len(values) > 1 else "one seed in common with the first row: the test omits the variance between seeds"
    return replace(group, paired=Paired(found.value, found.low, found.high, p_value(found)), note=note)


def p_value(difference: Difference) -> float:
    """Return 1 − the level at which an interval begins to contain 0: below 0.05 exactly if the 95 % one excludes 0."""

    def excludes(level: float) -> bool:
        low, high = difference.interval(level)
        return low > 0 or high < 0

    return 1 - crossing(lambda level: 1.0 if excludes(level) else -1.0, 0.0, 1 - 1e-9)


def group_differences(groups: Sequence[SeedGroup]) -> dict[str, list[str]]:
    """Return the settings that differ between the rows; the seed only if no row has several."""
    found = differences([group.rows[0].run for group in groups])
    return {k: v for k, v in found.items() if k != "seed" or all(len(group.rows) == 1 for group in groups)}


def group_notes(groups: Sequence[SeedGroup]) -> list[str]:
    """Return the caveats about runs, and the accuracy of each run of a row with several."""
    found = [f"{row.run.name}: {note}" for group in groups for row in group.rows for note in _notes(group, row)]
    for group in groups:
        found += [f"{group.name}: {group.note}"] if group.note else []
        if len(group.rows) > 1:
            each = (f"{row.run.name} {percent(row.robust)}" for row in group.rows)
            found.append(f"{group.name} (mean ± standard deviation): robust {', '.join(each)}")
    return found


def _notes(group: SeedGroup, row: Row) -> Iterable[str]:
    """Yield the notes of a run; those on a test that is not shown concern single runs only."""
    return (note for note in row.notes if len(group.rows) == 1 or "paired test" not in note)


def comparison_markdown(comparison: RunComparison) -> str:
    """Return the comparison as Markdown: the table, the settings that differ, and the notes."""
    groups = group_seeds(comparison)
    lines = [_line(HEADINGS), _line(["---"] * len(HEADINGS))]
    lines += [_line([*map(markdown, texts[:2]), *texts[2:]]) for texts in (group.cells() for group in groups)]
    lines += ["", f"robust: {markdown(comparison.title)}"]
    if differing := group_differences(groups):
        heads = ["setting", *(group.name for group in groups)]
        lines += ["", _line(map(markdown, heads)), _line(["---"] * len(heads))]
        lines += [_line(map(markdown, (name, *values))) for name, values in differing.items()]
    notes = group_notes(groups)
    return "\n".join([*lines, *([""] if notes else []), *(f"- {markdown(note)}" for note in notes)]) + "\n"


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(texts) + " |"
