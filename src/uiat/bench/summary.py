"""What a race says: a line for each method, as numbers for a table, a picture or a file."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from uiat.bench.entrants import Entrant, counted
from uiat.bench.race import Times


@dataclass(frozen=True)
class Line:
    """One entrant's cost."""

    name: str
    seconds: float
    """Of a step: the median over rounds, averaged over the phases of a run."""
    bare_seconds: float | None
    """Of the passes that the step needs."""
    over_bare: float | None
    """The median over rounds of the one by the other."""
    to_natural: float | None
    to_trades: float | None
    """The median over rounds of its time by that of the literal reference."""
    to_hat: float | None
    counts: list[dict[str, float]]
    """Passes counted in each phase, in batches."""
    as_stated: bool
    """Whether these are the passes that the method states."""
    peak_bytes: int | None
    first_seconds: float
    """Of the first steps, one a phase: with torch.compile, the cold start."""


def lines(entrants: Sequence[Entrant], times: Times, peaks: dict[str, int]) -> list[Line]:
    """Return a line for each entrant."""
    found = []
    for entrant in entrants:
        bare = times.bare(entrant.need) if entrant.state is not None else None
        passes = counted(entrant) if entrant.state is not None else []
        found.append(
            Line(
                entrant.name,
                median(times.steps[entrant.name]),
                None if bare is None else median(bare),
                None if bare is None else times.ratio(entrant.name, bare),
                _against(times, entrant.name, "literal natural"),
                _against(times, entrant.name, "literal trades"),
                _against(times, entrant.name, "literal hat"),
                [own for own, _ in passes],
                all(own == stated for own, stated in passes),
                peaks.get(entrant.name),
                times.first.get(entrant.name, 0.0),
            )
        )
    return found


def _against(times: Times, name: str, other: str) -> float | None:
    return times.ratio(name, times.steps[other]) if other in times.steps else None


def to_content(found: Sequence[Line], times: Times, facts: dict[str, Any]) -> dict[str, Any]:
    """Return all of it as JSON: settings, lines, and the seconds of every round."""
    rounds = {"steps": times.steps, "phases": times.phases, "bare_passes": times.passes}
    return {"schema": 1, **facts, "lines": [asdict(line) for line in found], "rounds": rounds}
