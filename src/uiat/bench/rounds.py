"""What rounds say: other work on a machine only ever makes a step slower, so the fastest round counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

AGREEING = 3
"""So many of the fastest rounds have to agree: one alone may be a lucky one among disturbed ones."""
TOLERANCE = 0.05
"""By how much they may differ."""


@dataclass
class Rounds:
    """Seconds of one entrant: a list a round, with a value for each phase of a run."""

    shares: tuple[float, ...] = (1.0,)
    """Of each phase in the run."""
    seconds: list[list[float]] = field(default_factory=list)

    @property
    def fastest(self) -> float:
        """The fastest step of each phase, averaged over the phases of a run."""
        return self._ranked(0)

    @property
    def spread(self) -> float | None:
        """By what share the third fastest took longer; `None` for fewer than three rounds."""
        return self._ranked(AGREEING - 1) / self.fastest - 1 if len(self.seconds) >= AGREEING else None

    def turns(self, size: int) -> list[float]:
        """Return the fastest of every `size` rounds, in their order."""
        starts = range(0, len(self.seconds), size)
        return [Rounds(self.shares, self.seconds[start : start + size]).fastest for start in starts]

    def _ranked(self, place: int) -> float:
        phases: list[float] = [sorted(phase)[place] for phase in zip(*self.seconds, strict=True)]
        return sum(share * seconds for share, seconds in zip(self.shares, phases, strict=True))


def as_rounds(seconds: Sequence[float]) -> Rounds:
    """Return rounds of a single phase."""
    return Rounds(seconds=[[value] for value in seconds])


def doubt(found: Mapping[str, Rounds]) -> str:
    """Say why the fastest rounds cannot be trusted; empty if they agree."""
    spreads = {name: rounds.spread for name, rounds in found.items()}
    if None in spreads.values():
        return f"fewer than {AGREEING} rounds cannot show whether times agree: take more."
    apart = {name: spread for name, spread in spreads.items() if spread is not None and spread > TOLERANCE}
    if not apart:
        return ""
    most = max(apart, key=lambda name: apart[name])
    return (
        f"times are not to be trusted: the third fastest round took more than {TOLERANCE:.0%} longer than the fastest "
        f"for {len(apart)} of {len(spreads)} (most for {most}: {apart[most]:.0%}); "
        "other work disturbs this machine, wait for a quiet one or take more rounds."
    )
