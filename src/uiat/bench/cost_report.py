"""Results of a benchmark: the cost of each method's step in seconds, passes and memory, as JSON and as a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from uiat.bench.interleaved_timing import Times
from uiat.bench.timed_method import TimedMethod
from uiat.report.figure_style import BLUE, GREY, VERMILLION, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StepCost:
    """The cost of one method's step; times and ratios are those of the fastest rounds."""

    name: str
    seconds: float
    """Seconds of a step, averaged over the phases of a run."""
    spread: float | None
    """Relative difference of the third fastest step; `None` for fewer than three rounds."""
    bare_seconds: float | None
    """Seconds of the bare passes of the step."""
    over_bare: float | None
    """`seconds` divided by `bare_seconds`."""
    to_natural: float | None
    to_trades: float | None
    """`seconds` divided by those of the literal reference."""
    to_hat: float | None
    counts: list[dict[str, float]]
    """Passes of a step in each phase, in batches."""
    peak_bytes: int | None
    first_seconds: float
    """Seconds of the first steps, one for each phase: with torch.compile, the cold start."""


def step_costs(methods: Sequence[TimedMethod], times: Times, peaks: Mapping[str, int]) -> list[StepCost]:
    """Return the cost of each method."""
    costs = []
    for method in methods:
        name, steps, bare = method.name, times.steps[method.name], times.bare.get(method.name)
        references = [f"literal {other}" for other in ("natural", "trades", "hat")]
        ratios = (times.ratio(name, other) if other in times.steps else None for other in references)
        to_natural, to_trades, to_hat = ratios
        costs.append(
            StepCost(
                name,
                steps.fastest,
                steps.spread,
                None if bare is None else bare.fastest,
                None if bare is None else times.over_bare(name),
                to_natural,
                to_trades,
                to_hat,
                [dict(phase.counts) for phase in method.phases if phase.counts],
                peaks.get(name),
                times.first.get(name, 0.0),
            )
        )
    return costs


def to_content(costs: Sequence[StepCost], times: Times, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the results as JSON: settings, costs, and the seconds of every round."""
    kinds = {"steps": times.steps, "bare_passes": times.bare}
    rounds = {kind: {name: each.seconds for name, each in timed.items()} for kind, timed in kinds.items()}
    lines = [asdict(cost) for cost in costs]
    return {"schema": 3, **facts, "lines": lines, "rounds": rounds, "doubt": times.timing_warning()}


def draw_costs(costs: Sequence[StepCost], title: str) -> "Figure":
    """Return horizontal bars, with hatched literal references and marks for the time of the bare passes."""
    unit = next((cost.seconds for cost in costs if cost.name == "literal trades"), costs[0].seconds)
    figure = new_figure(6.4, 0.9 + 0.32 * len(costs))
    axes = figure.add_subplot()
    for place, cost in enumerate(costs):
        literal, length = cost.bare_seconds is None, cost.seconds / unit
        style = {"color": "white", "edgecolor": GREY, "hatch": "///"} if literal else {"color": BLUE}
        axes.barh(place, length, height=0.62, **style)  # type: ignore[arg-type]
        axes.text(length + 0.015, place, f"{length:.2f}", va="center", fontsize=8)
        if cost.over_bare is not None:
            mark = length / cost.over_bare
            axes.plot([mark, mark], [place - 0.36, place + 0.36], color=VERMILLION, linewidth=1.8)
    axes.plot([], [], color=VERMILLION, linewidth=1.8, label="its bare passes")
    axes.set_yticks(range(len(costs)), [cost.name for cost in costs])
    axes.invert_yaxis()
    axes.set_xlabel("seconds of a step, literal TRADES = 1")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
