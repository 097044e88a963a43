"""Comparison of runs: the attack they share, their ranks, paired tests, and the settings that differ."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from uiat.config_json import to_json
from uiat.errors import UserError
from uiat.escaping import csv_cell
from uiat.evaluation.intervals import Paired, compare_verdicts
from uiat.fields import show_number
from uiat.progress import clock_time
from uiat.report.page.runs import Evaluation, Run, show_threat
from uiat.runs.provenance import edited_since
from uiat.runs.run_folder import Weights
from uiat.runs.weights import NO_DIGEST, OTHER_WEIGHTS

Threat = tuple[str, float, str]
SILENT = ("schema", "kind", "imports", "run_id", "train.log_every", "train.checkpoint_minutes", "data.download")
"""Fields of a configuration that do not affect results."""
NONE = "–"


@dataclass(frozen=True)
class Row:
    """One run in the comparison."""

    run: Run
    natural: Evaluation | None
    robust: Evaluation | None
    paired: Paired | None
    """Test against the best run, on the same images; `None` for the best run, and if the images differ."""
    notes: tuple[str, ...]
    """Caveats about the numbers."""

    @property
    def ranges(self) -> list[dict[str, Any]]:
        """The accuracies and their intervals, for a chart."""
        both = (("natural", self.natural), ("robust", self.robust))
        return [{"kind": kind, "value": e.accuracy, "low": e.low, "high": e.high} for kind, e in both if e]


@dataclass(frozen=True)
class RunComparison:
    """All runs, the one with the best robust accuracy first."""

    rows: tuple[Row, ...]
    threat: Threat | None
    """The attack by which runs are ranked."""
    weights: Weights
    """The weights whose accuracies are shown."""
    differences: dict[str, list[str]]
    """The value of each differing hyper-parameter, for each row."""
    seeds: tuple[str, ...]
    """A summary of each group of runs that differ only in their seed."""

    @property
    def title(self) -> str:
        """The attack, and the weights unless they are those of the best epoch."""
        attack = show_threat(self.threat) if self.threat else "no attack measured"
        return attack if self.weights == "best" else f"{attack}; weights of the last epoch"


def compare_runs(runs: Sequence[Run], attack: str | None = None, weights: Weights | None = None) -> RunComparison:
    """Rank the runs by their accuracy under the strongest attack that most of them were measured with.

    `weights` are those of the best epoch, unless runs were only measured with those of the last.
    """
    if weights is None:
        measured = {evaluation.weights for run in runs for evaluation in run.evaluations}
        weights = "last" if measured == {"last"} else "best"
    others = {run.folder.path for run in runs if run.evaluations and not any(_with(weights, run))}
    runs = [replace(run, evaluations=tuple(_with(weights, run))) for run in runs]
    threat = common_threat(runs, attack)
    order = sorted(runs, key=lambda run: -(evaluation.accuracy if (evaluation := run.under(threat)) else -1.0))
    best = order[0].under(threat) if order else None
    data = Counter(run.data for run in order).most_common(1)[0][0] if order else ()
    rows = []
    other = "last" if weights == "best" else "best"
    for k, run in enumerate(order):
        rows.append(_row(run, threat, best, data, first=not k, alone=other if run.folder.path in others else ""))
    return RunComparison(tuple(rows), threat, weights, differences(order), tuple(_seeds(rows)))


def _with(weights: Weights, run: Run) -> Iterable[Evaluation]:
    return (evaluation for evaluation in run.evaluations if evaluation.weights == weights)


def common_threat(runs: Sequence[Run], attack: str | None = None) -> Threat | None:
    """Return the attack to rank by: that of most runs, then the strongest, then that of the largest ε."""
    threats = Counter(threat for run in runs for threat in {e.threat for e in run.evaluations if e.eps or attack})
    if attack is not None:
        chosen = {threat: count for threat, count in threats.items() if threat[0] == attack}
        if not chosen:
            known = sorted({threat[0] for threat in threats}) or ["none"]
            raise UserError(f"no run was evaluated with {attack!r}: give one of {', '.join(known)}.")
        threats = Counter(chosen)
    return max(threats, key=lambda t: (threats[t], strength(t[0]), t[1]), default=None)


def strength(attack: str) -> tuple[int, int]:
    """Return a rough order of attacks: AutoAttack, its parts, CW and PGD by their passes, FGSM, none."""
    numbers = [int(word) for word in re.findall(r"\d+", attack)] or [1]
    passes = numbers[0] * (numbers[1] if len(numbers) > 1 else 1)
    kinds = ("natural", "fgsm", "pgd", "cw", "square", "fab", "apgd", "autoattack")
    kind = max((k for k, word in enumerate(kinds) if word in attack), default=0)
    return kind, passes


def _row(
    run: Run, threat: Threat | None, best: Evaluation | None, data: tuple[Any, ...], *, first: bool, alone: str
) -> Row:
    natural, robust = run.natural(), run.under(threat)
    notes = [run.progress] if run.progress else []
    if run.others:
        notes.append(f"{run.others} {OTHER_WEIGHTS}")
    if any(evaluation.without_digest for evaluation in (natural, robust) if evaluation):
        notes.append(f"its card {NO_DIGEST}")
    if edited := edited_since(run.config, run.card):
        notes.append(edited)
    if run.data != data:
        notes.append(f"other data than most ({run.data_name}): not comparable")
    if natural is None and robust is None:
        elsewhere = f"evaluated with the weights of the {alone} epoch alone: see `uiat compare --weights {alone}`"
        notes.append(elsewhere if alone else "not evaluated")
    elif robust is None and threat is not None:
        notes.append(f"not evaluated with {show_threat(threat)}")
    pair, reason = (None, "") if first else paired_test(robust, best)
    return Row(run, natural, robust, pair, (*notes, *filter(None, [reason])))


def paired_test(robust: Evaluation | None, best: Evaluation | None) -> tuple[Paired | None, str]:
    """Return the paired test of two runs on the same images, or `None` and why there is none."""
    if robust is None or best is None:
        return None, ""
    if robust.images != best.images:
        return None, "evaluated on other images than the first: no paired test"
    if robust.verdicts is None or best.verdicts is None:
        return None, "its card has no verdicts: evaluate again for a paired test"
    return compare_verdicts(robust.verdicts, best.verdicts), ""


def _seeds(rows: Sequence[Row]) -> Iterable[str]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(setting_key(row.run), []).append(row)
    for group in groups.values():
        accuracies = {row.run.saved.get("seed"): 100 * row.robust.accuracy for row in group if row.robust}
        if len(accuracies) > 1:
            names, values = ", ".join(row.run.name for row in group), list(accuracies.values())
            spread = f"robust {mean(values):.2f} ± {stdev(values):.2f} % (mean, sd)"
            yield f"{names}: {len(accuracies)} seeds of one setting, {spread}"


def setting_key(run: Run) -> str:
    """Return a text that runs share which differ only in their seed; fields that a version added are not compared."""
    return str({k: v for k, v in flatten(to_json(run.config, key=True)).items() if k != "seed"})


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a saved configuration by dotted name; the `kind` of a part is under the part's name."""
    if not isinstance(value, dict):
        return {prefix: value}
    leaves = {prefix: value["kind"]} if prefix.count(".") == 0 and prefix and "kind" in value else {}
    for name, part in value.items():
        path = f"{prefix}.{name}" if prefix else name
        if name not in SILENT and path not in SILENT:
            leaves |= flatten(part, path)
    return leaves


def differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the settings that differ between configurations.

    A field that only some methods have is omitted, unless runs that have it differ among themselves.
    """
    flat = [flatten(run.saved) for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    differing = {}
    for name in names:
        values = [show_setting(settings[name]) if name in settings else NONE for settings in flat]
        if len({value for value in values if value != NONE}) > 1:
            differing[name] = values
    return differing


def show_setting(value: Any) -> str:
    """Format a value of a configuration."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, list):
        return ", ".join(map(show_setting, value)) or "none"
    return show_number(value) if isinstance(value, float) else str(value) or "none"


HEADINGS = ("run", "method", "natural %", "robust %", "minus best", "p", "time", "passes")


def percent(evaluation: Evaluation | None) -> str:
    """Format an accuracy and its interval, in percent."""
    if evaluation is None:
        return NONE
    return f"{100 * evaluation.accuracy:.2f} [{100 * evaluation.low:.1f}–{100 * evaluation.high:.1f}]"


def cells(name: str, rows: Sequence[Row], pair: Paired | None) -> list[str]:
    """Return the cells of a row of the table: of one run, or means over several that differ only in their seed."""
    seconds = [row.run.seconds for row in rows if row.run.seconds]
    passes = [row.run.passes for row in rows if row.run.passes]
    return [
        name,
        rows[0].run.method,
        _spread([row.natural for row in rows]),
        _spread([row.robust for row in rows]),
        *show_paired(pair),
        clock_time(mean(seconds)) if seconds else NONE,
        show_count(round(mean(passes))) if passes else NONE,
    ]


def _spread(found: Sequence[Evaluation | None]) -> str:
    """Format an accuracy with its interval, or the mean and standard deviation of several."""
    values = [100 * evaluation.accuracy for evaluation in found if evaluation is not None]
    if len(found) == 1 or len(values) < len(found):
        return percent(found[0])
    return f"{mean(values):.2f} ± {stdev(values):.2f}"


def show_paired(pair: Paired | None) -> tuple[str, str]:
    """Format a paired difference in points with its interval, and its p-value."""
    if pair is None:
        return NONE, NONE
    minus = f"{100 * pair.difference:+.2f} [{100 * pair.low:+.1f}, {100 * pair.high:+.1f}]"
    return minus.replace("-", "−"), show_p(pair.p)


def show_p(p: float) -> str:
    """Format a p-value; one that would round up to the level of significance keeps a fourth digit."""
    return "<0.001" if p < 0.001 else f"{min(p, 0.0499):.4f}" if 0.0495 <= p < 0.05 else f"{p:.3f}"


def show_count(count: int) -> str:
    """Format a large number with three digits."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def comparison_csv(comparison: RunComparison) -> str:
    """Return the comparison as CSV with every digit."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    ends = ("", "_low", "_high", "_n")
    accuracies = [f"{kind}{end}" for kind in ("natural", "robust") for end in ends]
    pairs = ("minus_best", "minus_best_low", "minus_best_high", "mcnemar_p")
    headings = ["run", "method", *accuracies, "attack", *pairs, "seconds", "passes", *comparison.differences, "notes"]
    writer.writerow(map(csv_cell, headings))
    for k, row in enumerate(comparison.rows):
        numbers = [n for e in (row.natural, row.robust) for n in ((e.accuracy, e.low, e.high, e.n) if e else [""] * 4)]
        pair = row.paired
        paired = (pair.difference, pair.low, pair.high, pair.p) if pair else ("",) * 4
        others = [values[k] for values in comparison.differences.values()]
        cost = [row.run.seconds or "", row.run.passes or ""]
        attack = row.robust.title if row.robust else ""
        names = [row.run.name, row.run.method]
        line = [*names, *numbers, attack, *paired, *cost, *others, "; ".join(row.notes)]
        writer.writerow(map(csv_cell, line))
    return file.getvalue()


def notes(comparison: RunComparison) -> list[str]:
    """Return the caveats about all runs, and the summaries over seeds."""
    return [*(f"{row.run.name}: {note}" for row in comparison.rows for note in row.notes), *comparison.seeds]
