"""The opening of the results page: whether UIAT helps, because of which part, and which method to use."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.results_pairs import ATTACK_NAMES, NO_DIFFERENCE, Pair, Published, larger_pairs, side
from uiat.bench.pass_count import passes_per_image
from uiat.config import AnyConfig
from uiat.evaluation.intervals import Difference
from uiat.report.figure_style import BLUE, GREEN, GREY, VERMILLION, add_grid, new_figure
from uiat.report.panels import PURPLE
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.claims import Comparison, Finding, largest_effect, show_finding
from uiat.reproduce.claims_list import MARGIN
from uiat.reproduce.experiments.beyond import CONTROL_COLUMNS, INVERSE, KL, MOMENTUM, NO_MOMENTUM, control_runs
from uiat.reproduce.experiments.sweeps import front_cells
from uiat.reproduce.experiments.tables import TABLE1_METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROBUST_COLUMNS = tuple(column for column in CONTROL_COLUMNS if column != "Natural")
SINGLE = "N-FGSM + UIAT"
KL_STEP, MOMENTUM_STEP, INVERSE_STEP = "KL to f(x)", "momentum", "inverse adversary"
OVER_SAT = "all of UIAT"
NAMES = {
    KL_STEP: "the KL term with p = f(x)",
    MOMENTUM_STEP: "momentum",
    INVERSE_STEP: "inverse adversarial examples",
}
"""UIAT's parts, in the order in which they are added, as sentences name them."""


@dataclass(frozen=True)
class Step:
    """A part that is added: its name, and the runs with it and without it, by the keys of `control_runs`."""

    part: str
    to: str
    ours: tuple[str, str]
    theirs: tuple[str, str]

    def pair(self, runs: dict[tuple[str, str], AnyConfig]) -> Pair:
        """Return the configurations with and without the part."""
        return runs[self.ours], runs[self.theirs]


_ONE_OFF = "UIAT (One-off)"
STEPS = (
    Step(KL_STEP, "SAT", ("UIAT", KL), ("UIAT", "SAT")),
    Step(MOMENTUM_STEP, "SAT + KL", ("UIAT", MOMENTUM), ("UIAT", KL)),
    Step(INVERSE_STEP, "SAT + KL + momentum", ("UIAT", INVERSE), ("UIAT", MOMENTUM)),
    Step(OVER_SAT, "SAT", ("UIAT", INVERSE), ("UIAT", "SAT")),
    Step("inverse adversary, no momentum", "SAT + KL", ("UIAT", NO_MOMENTUM), ("UIAT", KL)),
    Step("KL to f(x), one-off", "SAT", (_ONE_OFF, KL), ("UIAT", "SAT")),
    Step("inverse adversary", "one-off with KL", (_ONE_OFF, INVERSE), (_ONE_OFF, KL)),
    Step("KL to f(x)", "N-FGSM", ("N-FGSM", KL), ("N-FGSM", "N-FGSM")),
    Step("inverse adversary", "N-FGSM + KL", ("N-FGSM", INVERSE), ("N-FGSM", KL)),
)
"""What each part adds to what: UIAT's parts one by one, then one-off UIAT's and those of N-FGSM + UIAT."""
Found = dict[Step, dict[str, Difference]]


def found_steps(runs: Published) -> Found:
    """Return the differences of every step, by the columns that are measured on both sides."""
    configs = control_runs(runs.scale)
    return {step: _columns(runs, step.pair(configs)) for step in STEPS}


def _columns(runs: Published, pair: Pair) -> dict[str, Difference]:
    found = {column: runs.difference(pair, column) for column in CONTROL_COLUMNS}
    return {column: difference for column, difference in found.items() if difference is not None}


def _command(runs: Published) -> str:
    return f"`uiat reproduce control --scale {runs.scale.name} --seeds {runs.seeds}`"


def takeaways(runs: Published, found: Found) -> dict[str, str]:
    """Return answers to a researcher's questions; all of them follow from the intervals."""
    steps = {step.part: found[step] for step in STEPS[:4]}
    return {
        "Does UIAT help?": " ".join([_whether(runs, steps[OVER_SAT]), *_larger_eps(runs)]),
        "Because of which part?": _because(runs, found),
        "Which method should I use?": advice(runs),
    }


def short_takeaways(runs: Published, found: Found) -> list[str]:
    """Return the answers in short, without intervals: whether and why UIAT helps, and which method to use."""
    steps = {step.part: found[step] for step in STEPS[:4]}
    whole = steps[OVER_SAT]
    sides = [_values(whole, where) for where in ("above", "below")]
    if not any(sides):
        return [f"UIAT against SAT: no effect shown{_so_far(runs, whole)}.", advice(runs, short=True)]
    parts: dict[str, list[str]] = {"robustness comes from": [], "no effect shown": []}
    for part, name in NAMES.items():
        robust = {column: steps[part][column] for column in ROBUST_COLUMNS if column in steps[part]}
        parts["robustness comes from" if _values(robust, "above") else "no effect shown"].append(name)
    why = "; ".join(f"{verb}: {', '.join(names)}" for verb, names in parts.items() if names)
    text = f"UIAT against SAT, in points: {', '.join(filter(None, sides))}; {why}{_so_far(runs, whole)}."
    return [text, advice(runs, short=True)]


def _values(own: dict[str, Difference], where: str) -> str:
    return ", ".join(f"{ATTACK_NAMES[c]} {100 * d.value:+.1f}" for c, d in own.items() if side(d) == where)


def _whether(runs: Published, own: dict[str, Difference]) -> str:
    above, below, open_ = (_named(own, where) for where in ("above", "below", NO_DIFFERENCE))
    scale = f"At this scale ({runs.scale.banner.removeprefix(f'{runs.scale.name}: ')})"
    if not above and not below and not open_:
        return f"Whether UIAT helps is not decided, too few runs are finished: {_command(runs)}."
    if above and below:
        text = f"{scale}, UIAT with the paper's λ is a trade-off against SAT, in points: {above}; {below}"
    elif above:
        text = f"{scale}, UIAT is more accurate than SAT: {above} points"
    elif below:
        text = f"{scale}, UIAT is less accurate than SAT: {below} points"
    else:
        return f"{scale}, UIAT shows no effect over SAT: {open_} points{_so_far(runs, own)}."
    return f"{text}{f'; undecided: {open_}' if open_ else ''}{_so_far(runs, own)}."


def _larger_eps(runs: Published) -> list[str]:
    """Compare UIAT with SAT trained at each larger ε that has runs; a trade-off may be had without UIAT."""
    lines = []
    for (ours, theirs), pair in larger_pairs(runs).items():
        own = _columns(runs, pair) if ours == "UIAT" else {}
        shown = [f"{where}: {named}" for where in ("above", "below", NO_DIFFERENCE) if (named := _named(own, where))]
        if shown:
            lines.append(f"UIAT against {theirs}: {'; '.join(shown)}{_so_far(runs, own)}.")
    return lines


def _because(runs: Published, found: Found) -> str:
    parts = []
    for step in STEPS[:3]:
        name = NAMES[step.part]
        own = {column: found[step][column] for column in ROBUST_COLUMNS if column in found[step]}
        shown = ", ".join(filter(None, (_named(own, "above"), _named(own, "below"))))
        if not own or any(difference.one_seed for difference in own.values()):
            parts.append(f"{name}: not decided, too few runs are finished")
        elif shown:
            parts.append(f"{name}: {shown}{_so_far(runs, own)}")
        else:
            parts.append(f"{name}: no effect shown, at most {_bounds(own)}{_so_far(runs, own)}")
    others = [_named(found[step], "above") for step in STEPS[4:] if step.part.startswith(INVERSE_STEP)]
    names = [f"{step.part}, added to {step.to}" for step in STEPS[4:] if step.part.startswith(INVERSE_STEP)]
    also = "; ".join(f"{name}: {shown}" for name, shown in zip(names, others, strict=True) if shown)
    return f"Under attack, each part adds: {'; '.join(parts)}." + (f" Elsewhere, {also}." if also else "")


def _bounds(own: dict[str, Difference]) -> str:
    """Name the largest effect that the interval of each column does not exclude."""
    return ", ".join(f"{100 * largest_effect(d):.2f} points under {ATTACK_NAMES[column]}" for column, d in own.items())


def _named(own: dict[str, Difference], where: str) -> str:
    """Name the columns of which the difference is on a side of 0, with values and intervals."""
    texts = []
    for column, difference in own.items():
        if side(difference) == where:
            value, low, high = (100 * number for number in (difference.value, difference.low, difference.high))
            texts.append(f"{ATTACK_NAMES[column]} {value:+.2f} [{low:+.2f}, {high:+.2f}]")
    return ", ".join(texts)


def _so_far(runs: Published, own: dict[str, Difference]) -> str:
    """Say how many seeds there are, where more are planned."""
    seeds = min((difference.seeds for difference in own.values()), default=0)
    return f" ({seeds} of {runs.seeds} seeds so far)" if seeds < runs.seeds else ""


def parts_table(runs: Published, found: Found) -> list[str]:
    """Return the table of what each part adds, a row for each step; a row without runs names the command."""
    heads = [ATTACK_NAMES[column] for column in CONTROL_COLUMNS]
    lines = ["## What each part adds", "", f"| part | added to | {' | '.join(heads)} | seeds |"]
    lines.append("| --- | --- |" + " ---: |" * len(heads) + " ---: |")
    for step, own in found.items():
        shown = " | ".join(_cell(own.get(column)) for column in CONTROL_COLUMNS)
        lines.append(f"| {step.part} | {step.to} | {shown} | {_seeds(own)} |")
    note = (
        "Paired differences in points with 95 % intervals over the seeds at which both runs are finished and over test "
        "images; bold: the interval excludes 0 (nothing is corrected for the number of intervals). ε' = 0 takes the "
        "inverse adversary away, so that p = f(x); all else is equal, random draws included. Missing seeds are made by "
        f"{_command(runs)}."
    )
    return [*lines, "", note, ""]


def _seeds(own: dict[str, Difference]) -> str:
    """Return over how many seeds the columns are compared."""
    counts = sorted({difference.seeds for difference in own.values()})
    return "–".join(str(count) for count in counts[:: max(1, len(counts) - 1)]) or "no runs"


def _cell(difference: Difference | None) -> str:
    if difference is None:
        return "–"
    value, interval = show_finding(Finding(Comparison("", None), difference))
    return f"**{value}** {interval}" if side(difference) in ("above", "below") else f"{value} {interval}"


def draw_forest(found: Found, title: str) -> "Figure":
    """Return the forest plot: a row for each step, a mark and an interval for each column."""
    measured = {step: own for step, own in found.items() if own}
    figure = new_figure(7.6, 1.0 + 0.62 * len(measured))
    axes = figure.subplots()
    marks = dict(zip(CONTROL_COLUMNS, ((GREEN, "o"), (BLUE, "s"), (PURPLE, "^"), (VERMILLION, "D")), strict=True))
    for row, own in enumerate(measured.values()):
        for k, column in enumerate(CONTROL_COLUMNS):
            if column in own:
                color, mark = marks[column]
                value, low, high = (100 * number for number in (own[column].value, own[column].low, own[column].high))
                y = row + 0.18 * (k - 1.5)
                decided = side(own[column]) in ("above", "below")
                axes.plot([low, high], [y, y], color=color, linewidth=1.8)
                axes.plot([value], [y], mark, color=color, markersize=6, markerfacecolor=color if decided else "white")
    axes.axvline(0, color=GREY, linewidth=1.2, linestyle="--", zorder=0)
    axes.set_yticks(range(len(measured)), [f"+ {step.part}\nto {step.to}" for step in measured], fontsize=8.5)
    axes.set_ylim(len(measured) - 0.5, -0.5)
    axes.set_xlabel("difference of accuracy in points, 95 % interval (filled: it excludes 0)")
    axes.set_title(title, fontsize=10, parse_math=False)
    handles = [axes.plot([], [], mark, color=color)[0] for color, mark in marks.values()]
    style = {"ncols": 4, "frameon": False, "fontsize": 9}
    figure.legend(handles, [ATTACK_NAMES[column] for column in marks], loc="outside lower center", **style)
    add_grid(axes)
    return figure


def candidates(runs: Published) -> dict[str, AnyConfig]:
    """Return the methods that one may choose from, the cheapest first; other λ and ε as far as runs are finished."""
    configs = {name: runs.scale.config(method) for name, method in TABLE1_METHODS.items()}
    single = control_runs(runs.scale)
    configs |= {"N-FGSM": single["N-FGSM", "N-FGSM"], SINGLE: single["N-FGSM", INVERSE]}
    known = list(configs.values())
    for line in ("SAT (ε)", "UIAT (λ)"):
        for cell in front_cells(runs.scale, line):
            if cell.config not in known and len(seed_stores(Cell(cell.config), runs.out, runs.seeds)) >= runs.least:
                configs[cell.labels[0].replace(" trained at", ",")] = cell.config
    return dict(sorted(configs.items(), key=lambda item: passes(item[1])))


def passes(config: AnyConfig) -> float:
    """Return the passes of an epoch for each training image."""
    return sum(passes_per_image(config.method, config.train.epochs)) / config.train.epochs


def which_method(runs: Published) -> list[str]:
    """Return the table of accuracy and cost: each method against UIAT."""
    configs = candidates(runs)
    uiat = configs["UIAT"]
    heads = [f"{ATTACK_NAMES[column]}, over UIAT" for column in CONTROL_COLUMNS]
    lines = [
        f"| method | passes an image | {' | '.join(heads)} | seeds |",
        "| --- |" + " ---: |" * (2 + len(heads)),
    ]
    for name, config in configs.items():
        own = {} if name == "UIAT" else _columns(runs, (config, uiat))
        shown = " | ".join("0" if name == "UIAT" else _cell(own.get(column)) for column in CONTROL_COLUMNS)
        seeds = "" if name == "UIAT" else _seeds(own)
        lines.append(f"| {name} | {passes(config):.1f} | {shown} | {seeds} |")
    note = (
        "Differences of accuracies in points, with intervals as above. Every method has the weight of its paper, and "
        "the learning rate that `tuning` found; a smaller λ keeps more natural accuracy, and a larger ε of training "
        "gives SAT more robustness: `fronts` has the values that were run."
    )
    return ["## Which method should I use?", "", *lines, "", note, ""]


def advice(runs: Published, short: bool = False) -> str:
    """Return the verdict on N-FGSM + UIAT against UIAT: only over all planned seeds, in all columns.

    The cheap method is advised if no accuracy is lower by `MARGIN` or more, by the whole interval. In `short`, without
    intervals.
    """
    configs = candidates(runs)
    own = _columns(runs, (configs[SINGLE], configs["UIAT"]))
    costs = f"{passes(configs[SINGLE]):.1f} passes an image, UIAT {passes(configs['UIAT']):.1f}"
    missing = [column for column in CONTROL_COLUMNS if column not in own or own[column].seeds < runs.seeds]
    if missing:
        names = ", ".join(ATTACK_NAMES[column] for column in missing)
        open_ = f"not yet decided (fewer than {runs.seeds} seeds for {names})"
        end = "." if short else f": {_command(runs)}."
        return f"{SINGLE} takes {costs}; whether that costs accuracy is {open_}{end}"
    values = _shown(own, short)
    below = _shown({column: difference for column, difference in own.items() if side(difference) == "below"}, short)
    lost = [ATTACK_NAMES[column] for column, difference in own.items() if difference.low <= -MARGIN]
    saved = f"it takes {costs}"
    if not lost:
        return f"Use {SINGLE} at this scale: {saved}, and no accuracy is lower by a point or more ({values})."
    if below:
        return f"Use {SINGLE} where cost matters, UIAT where accuracy does: {saved}, and it is below: {below}."
    return (
        f"Use {SINGLE} where cost matters: {saved}, and no accuracy is significantly lower ({values}), but a loss of a "
        f"point is not excluded for {', '.join(lost)}."
    )


def _shown(own: dict[str, Difference], short: bool) -> str:
    if short:
        return ", ".join(f"{ATTACK_NAMES[column]} {100 * d.value:+.1f}" for column, d in own.items())
    return ", ".join(filter(None, (_named(own, where) for where in ("above", "below", NO_DIFFERENCE))))


def opening(runs: Published, found: Found, picture: str) -> list[str]:
    """Return the first screen of the page."""
    shown = [f"![What each part adds]({picture})", ""] if any(found.values()) else []
    return [
        *(f"- **{question}** {answer}" for question, answer in takeaways(runs, found).items()),
        "",
        *parts_table(runs, found),
        *shown,
        *which_method(runs),
    ]
