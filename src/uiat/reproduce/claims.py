"""Claims of the paper as comparisons that finished runs can decide, and their verdicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from uiat.config import AnyConfig
from uiat.reproduce.cell import Cell, common_seeds
from uiat.reproduce.compare import LEVEL, Difference, paired
from uiat.reproduce.measures import Measure

Verdict = Literal["holds", "does not hold", "not measured at this scale"]
NOT_MEASURED: Verdict = "not measured at this scale"
Evidence = Callable[[Path, int], Difference | None]
"""(folder, seeds) → the difference that finished runs show, on the side of the claim above 0; `None` before."""


@dataclass(frozen=True)
class Part:
    """One comparison: the claim says that the difference is above 0, or within ± a margin of it."""

    text: str
    evidence: Evidence | None
    """`None`: the scale has no such runs."""
    paper: str = ""
    """The paper's own difference, from its tables, on the side of the claim as well; empty: it gives no figure."""
    margin: float | None = None
    """For claims that two are level."""
    percent: bool = True
    """Whether it is a share, written in points of percent; else seconds."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, where, and the comparisons that it comes down to."""

    name: str
    text: str
    where: str
    parts: tuple[Part, ...]
    made_by: str
    """The experiments whose runs decide it."""


@dataclass(frozen=True)
class Found:
    """A comparison with what was found."""

    part: Part
    difference: Difference | None

    @property
    def verdict(self) -> Verdict:
        """The comparison's own verdict, at 95 %."""
        return self.verdict_at(LEVEL)

    def verdict_at(self, level: float) -> Verdict:
        """Decide only where the whole interval is on one side, and only from more than one network a method."""
        d, margin = self.difference, self.part.margin
        if d is None or d.one_seed:
            return NOT_MEASURED
        low, high = d.interval(level)
        if margin is not None:
            inside, outside = -margin < low and high < margin, low > margin or high < -margin
            return "holds" if inside else "does not hold" if outside else NOT_MEASURED
        return "holds" if low > 0 else "does not hold" if high < 0 else NOT_MEASURED

    @property
    def why(self) -> str:
        """Say what is missing for a verdict; empty where there is one."""
        if self.verdict != NOT_MEASURED:
            return ""
        if self.difference is None:
            return "no finished runs"
        if self.difference.one_seed:
            return "one seed tells of networks, not of methods"
        return f"the interval holds {'0' if self.part.margin is None else 'the margin'}"


def overall(found: Sequence[Found]) -> Verdict:
    """Return a claim's verdict: it holds if all parts do, and does not hold if one part does not once corrected.

    That all hold needs no correction (an intersection-union test); that one of k does not is corrected for having
    looked at k (Bonferroni).
    """
    if any(each.verdict_at(corrected(found)) == "does not hold" for each in found):
        return "does not hold"
    return "holds" if found and all(each.verdict == "holds" for each in found) else NOT_MEASURED


def corrected(found: Sequence[Found]) -> float:
    """Return the level at which one part refutes its claim: 1 − 0.05 / k for k parts that can be decided."""
    decidable = [each for each in found if each.difference is not None and not each.difference.one_seed]
    return 1 - (1 - LEVEL) / max(1, len(decidable))


def missing(found: Sequence[Found]) -> str:
    """Say what is missing for a claim's verdict; empty where there is one."""
    if overall(found) != NOT_MEASURED:
        return ""
    if any(each.verdict == "does not hold" for each in found):
        return f"what fails at 95 % does not at {100 * corrected(found):.1f} %, corrected for the number of comparisons"
    there = [each for each in found if each.difference is not None]
    if there and len(there) < len(found) and all(each.verdict == "holds" for each in there):
        return f"no finished runs for {len(found) - len(there)} of {len(found)} comparisons"
    return next((each.why for each in there if each.why), "no finished runs")


def in_words(verdict: Verdict, why: str) -> str:
    """Write a verdict with what is missing for one."""
    return f"{verdict}: {why}" if why else verdict


def decide(claim: Claim, out: Path, seeds: int) -> list[Found]:
    """Look at the finished runs for every part of a claim."""
    return [Found(part, part.evidence(out, seeds) if part.evidence else None) for part in claim.parts]


def more_accurate(first: Sequence[AnyConfig], second: Sequence[AnyConfig], measure: Measure) -> Evidence:
    """Compare mean accuracies of two groups of runs on the same images."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        return _paired_runs([*first, *second], measure, out, seeds, lambda tensors: _means(tensors, len(first)))

    return evidence


def _means(tensors: list[dict[str, Tensor]], count: int) -> Tensor:
    verdicts = torch.stack([found["correct"].double() for found in tensors])
    return verdicts[:count].mean(dim=0) - verdicts[count:].mean(dim=0)


def smaller_gap(first: AnyConfig, second: AnyConfig, measure: Measure, point: int) -> Evidence:
    """Compare the gaps between the easier and the harder half at one point of a curve: second's − first's."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        def gaps(tensors: list[dict[str, Tensor]]) -> Tensor:
            mine, other = (_gap(found["correct"][point], found["easier"]) for found in tensors)
            return other - mine

        return _paired_runs([first, second], measure, out, seeds, gaps, bound=2.0)

    return evidence


def _gap(correct: Tensor, easier: Tensor) -> Tensor:
    """Return what each example adds to the gap: the mean over examples is the gap."""
    n = len(easier)
    weights = torch.where(easier, n / max(1, int(easier.sum())), -n / max(1, int((~easier).sum())))
    return correct.double() * weights.double()


def above_on_curve(
    first: AnyConfig, second: AnyConfig, measure: Measure, points: Sequence[int], sign: float = 1.0
) -> Evidence:
    """Compare mean accuracies over some points of a curve."""

    def evidence(out: Path, seeds: int) -> Difference | None:
        def means(tensors: list[dict[str, Tensor]]) -> Tensor:
            mine, other = (found["correct"][list(points)].double().mean(dim=0) for found in tensors)
            return sign * (mine - other)

        return _paired_runs([first, second], measure, out, seeds, means)

    return evidence


def _paired_runs(
    configs: Sequence[AnyConfig],
    measure: Measure,
    out: Path,
    seeds: int,
    difference: Callable[[list[dict[str, Tensor]]], Tensor],
    bound: float = 1.0,
) -> Difference | None:
    rows = common_seeds([Cell(config) for config in configs], out, seeds, measure)
    if not rows:
        return None
    return paired(torch.stack([difference([store.tensors(measure) for store in row]) for row in rows]), bound)
