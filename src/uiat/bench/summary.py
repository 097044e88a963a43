"""What a race says: a line for each method, as numbers for a table, a picture or a file."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from uiat.bench.entrants import TimedMethod, counted
from uiat.bench.race import Times
from uiat.bench.rounds import Rounds, doubt


@dataclass(frozen=True)
class Line:
    """One entrant's cost; times and ratios are those of the fastest rounds."""

    name: str
    seconds: float
    """Of a step, averaged over the phases of a run."""
    spread: float | None
    """By what share the third fastest step took longer; `None` for fewer than three rounds."""
    bare_seconds: float | None
    """Of the passes that the step needs."""
    over_bare: float | None
    """The one by the other."""
    to_natural: float | None
    to_trades: float | None
    """Its time by that of the literal reference."""
    to_hat: float | None
    counts: list[dict[str, float]]
    """Passes counted in each phase, in batches."""
    stated: bool
    """Whether the method states its passes; else they were counted, and the bare passes are these."""
    as_stated: bool
    """Whether the counted passes are those that the method states."""
    peak_bytes: int | None
    first_seconds: float
    """Of the first steps, one a phase: with torch.compile, the cold start."""


def lines(entrants: Sequence[TimedMethod], times: Times, peaks: dict[str, int]) -> list[Line]:
    """Return a line for each entrant."""
    found = []
    for entrant in entrants:
        name, steps = entrant.name, times.steps[entrant.name]
        passes = counted(entrant) if entrant.state is not None else []
        found.append(
            Line(
                name,
                steps.fastest,
                steps.spread,
                times.bare[name].fastest if name in times.bare else None,
                times.over_bare(name) if name in times.bare else None,
                _against(times, name, "literal natural"),
                _against(times, name, "literal trades"),
                _against(times, name, "literal hat"),
                [own for own, _ in passes],
                entrant.stated,
                not entrant.stated or all(own == stated for own, stated in passes),
                peaks.get(name),
                times.first.get(name, 0.0),
            )
        )
    return found


def _against(times: Times, name: str, other: str) -> float | None:
    return times.ratio(name, other) if other in times.steps else None


def doubts(times: Times) -> str:
    """Say why a race cannot be trusted, of steps and bare passes alike; empty if its rounds agree."""
    return doubt({**times.steps, **{f"{name}'s bare passes": found for name, found in times.bare.items()}})


def to_content(found: Sequence[Line], times: Times, facts: dict[str, Any]) -> dict[str, Any]:
    """Return all of it as JSON: settings, lines, and the seconds of every round."""
    rounds = {"steps": _plain(times.steps), "bare_passes": _plain(times.bare)}
    return {"schema": 2, **facts, "lines": [asdict(line) for line in found], "rounds": rounds, "doubt": doubts(times)}


def _plain(rounds: dict[str, Rounds]) -> dict[str, list[list[float]]]:
    return {name: each.seconds for name, each in rounds.items()}
