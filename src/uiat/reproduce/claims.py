"""Claims of the paper as comparisons decided by finished runs, their verdicts, and claims.md and claims.json."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from uiat.evaluation.intervals import LEVEL, Difference
from uiat.io import write_json, write_text
from uiat.reproduce.scale import Scale

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
UNDECIDED: Verdict = "undecided"
"""There are runs, but too few seeds or images for a verdict."""
NOT_MEASURED: Verdict = "not measured"
"""There are no finished runs."""
DECIDED: tuple[Verdict, ...] = ("holds", "does not hold")
Evidence = Callable[[Path, int], Difference | None]
"""(folder, seeds) → the difference that finished runs show, above 0 where the claim holds; `None`: there are none."""
RULE = (
    "Every comparison is stated the way the paper has it. It holds if its whole 95 % interval is above 0 (for "
    "“level”: within the margin), does not hold if all of it is below (outside), and is undecided otherwise. A claim "
    "holds if all of its comparisons do. It does not hold at this scale if one of them does not at a stricter level: "
    "1 − 0.05 / k for the k comparisons of the claim that can be decided. Intervals of accuracies and shares are "
    "paired, with seeds and images as crossed random effects: Student's t over seeds and the normal distribution over "
    "images, combined in quadrature. The variance of an accuracy between seeds is estimated over all methods that are "
    "measured alike, and each comparison's own counts in proportion (Smyth's moderated t). With one seed the interval "
    "is over images alone, which compares networks and not methods, so there is no verdict. What stays undecided has a "
    "bound: the far end of its interval. Nothing is corrected across claims: of twenty differences that are truly 0, "
    "one would seem decided. Intervals of times are Yuen's trimmed t, of logarithms of ratios, over repetitions of an "
    "interleaved benchmark."
)


class Untestable(Exception):
    """Finished runs cannot decide a comparison, whatever their number; the message says why."""


@dataclass(frozen=True)
class Comparison:
    """A part of a claim: the difference is above 0, or within ± a margin."""

    text: str
    evidence: Evidence | None
    """`None`: the scale has no such runs."""
    paper: str = ""
    """The paper's own difference, from its tables, above 0 as well; empty: it gives no figure."""
    margin: float | None = None
    """The largest difference at which two are called level."""
    percent: bool = True
    """Whether it is a share, written in points of percent; else seconds."""

    def show(self, value: float, sign: str = "+") -> str:
        """Format a difference: in points with two decimals, or in seconds with three."""
        return f"{100 * value:{sign}.2f}" if self.percent else f"{value:{sign}.3f}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, where it is made, and its comparisons."""

    name: str
    text: str
    where: str
    comparisons: tuple[Comparison, ...]
    made_by: str
    """The experiments whose runs decide it."""


@dataclass(frozen=True)
class Finding:
    """A comparison with its evidence."""

    comparison: Comparison
    difference: Difference | None
    untestable: str = ""
    """Why finished runs cannot decide it; empty if they can, or if there are none."""

    @property
    def verdict(self) -> Verdict:
        """The comparison's own verdict, at 95 %."""
        return self.verdict_at(LEVEL)

    def verdict_at(self, level: float) -> Verdict:
        """Return a verdict at a level: decided only if the whole interval is on one side, over more than one seed."""
        d, margin = self.difference, self.comparison.margin
        if d is None:
            return NOT_MEASURED
        if d.one_seed:
            return UNDECIDED
        low, high = d.interval(level)
        if margin is not None:
            inside, outside = -margin < low and high < margin, low > margin or high < -margin
            return "holds" if inside else "does not hold" if outside else UNDECIDED
        return "holds" if low > 0 else "does not hold" if high < 0 else UNDECIDED

    @property
    def why(self) -> str:
        """Return what is missing for a verdict; empty if there is one."""
        if self.verdict in DECIDED:
            return ""
        if self.difference is None:
            return self.untestable or "no finished runs"
        if self.difference.one_seed:
            return "one seed compares networks, not methods"
        return f"the interval contains {'0' if self.comparison.margin is None else 'the margin'}"

    @property
    def bound(self) -> str:
        """Return how large an effect can be that several seeds leave undecided; empty otherwise."""
        if self.verdict != UNDECIDED or self.difference is None or self.difference.one_seed:
            return ""
        size = self.comparison.show(largest_effect(self.difference), sign="")
        return f"no effect larger than {size} {'points' if self.comparison.percent else 'seconds'}"


def largest_effect(difference: Difference) -> float:
    """Return the far end of the 95 % interval: the largest effect, of either sign, that the data do not exclude."""
    return max(abs(difference.low), abs(difference.high))


def overall(findings: Sequence[Finding]) -> Verdict:
    """Return a claim's verdict: it holds if all parts do, and does not hold if one part does not once corrected.

    That all hold needs no correction (an intersection-union test); that one of k does not is corrected for k
    comparisons (Bonferroni).
    """
    if any(finding.verdict_at(corrected(findings)) == "does not hold" for finding in findings):
        return "does not hold"
    if all(finding.difference is None for finding in findings):
        return NOT_MEASURED
    return "holds" if all(finding.verdict == "holds" for finding in findings) else UNDECIDED


def corrected(findings: Sequence[Finding]) -> float:
    """Return the level at which one part refutes its claim: 1 − 0.05 / k for k parts that can be decided."""
    decidable = [finding for finding in findings if finding.difference is not None and not finding.difference.one_seed]
    return 1 - (1 - LEVEL) / max(1, len(decidable))


def missing(findings: Sequence[Finding]) -> str:
    """Return what is missing for a claim's verdict; empty if there is one."""
    if overall(findings) in DECIDED:
        return ""
    if any(finding.verdict == "does not hold" for finding in findings):
        return (
            f"what fails at 95 % does not at {100 * corrected(findings):.1f} %, corrected for the number of comparisons"
        )
    measured = [finding for finding in findings if finding.difference is not None]
    if measured and len(measured) < len(findings) and all(finding.verdict == "holds" for finding in measured):
        return f"no finished runs for {len(findings) - len(measured)} of {len(findings)} comparisons"
    return next((finding.why for finding in measured or findings if finding.why), "no finished runs")


def show_verdict(verdict: Verdict, why: str) -> str:
    """Format a verdict with its reason, if any; what does not hold at one scale may hold at another."""
    shown = "not at this scale" if verdict == "does not hold" else verdict
    return f"{shown}: {why}" if why else shown


def decide(claim: Claim, out: Path, seeds: int) -> list[Finding]:
    """Return the evidence for every comparison of a claim."""
    findings = []
    for comparison in claim.comparisons:
        try:
            difference = comparison.evidence(out, seeds) if comparison.evidence else None
            findings.append(Finding(comparison, difference))
        except Untestable as reason:
            findings.append(Finding(comparison, None, str(reason)))
    return findings


def write_claims(claims: Sequence[Claim], scale: Scale, out: Path, seeds: int) -> list[tuple[Claim, list[Finding]]]:
    """Decide claims from the finished runs, write both files, and return the findings."""
    decided = [(claim, decide(claim, out, seeds)) for claim in claims]
    records = [
        {
            "name": claim.name,
            "claim": claim.text,
            "where": claim.where,
            "made_by": claim.made_by,
            "verdict": overall(findings),
            "missing": missing(findings) or None,
            "comparisons": [_record(finding) for finding in findings],
        }
        for claim, findings in decided
    ]
    facts = {"schema": 2, "scale": scale.name, "worth": scale.caveat, "rule": RULE}
    write_json(out / "claims.json", {**facts, "claims": records})
    write_text(out / "claims.md", _markdown(scale, decided))
    return decided


def show_finding(finding: Finding) -> tuple[str, str]:
    """Format a difference and its interval."""
    d, show = finding.difference, finding.comparison.show
    return ("–", "–") if d is None else (show(d.value), f"[{show(d.low)}, {show(d.high)}]")


def _size(finding: Finding) -> str:
    d = finding.difference
    if d is None:
        return "–"
    return f"{d.examples} repetitions" if d.over == "rounds" else f"{d.seeds} × {d.examples}"


def _record(finding: Finding) -> dict[str, Any]:
    comparison, d = finding.comparison, finding.difference
    return {
        "text": comparison.text,
        "unit": "share" if comparison.percent else "seconds",
        "difference": None if d is None else d.value,
        "interval95": None if d is None else [d.low, d.high],
        "seeds": 0 if d is None else d.seeds,
        "examples": 0 if d is None else d.examples,
        "over": None if d is None else d.over,
        "margin": comparison.margin,
        "paper": comparison.paper or None,
        "verdict": finding.verdict,
        "missing": finding.why or None,
        "largest_effect": None if d is None else largest_effect(d),
    }


def _markdown(scale: Scale, decided: list[tuple[Claim, list[Finding]]]) -> str:
    lines = ["# The paper's claims", "", f"**{scale.banner}**. {scale.caveat}", "", RULE, ""]
    lines += ["| claim | where | verdict | from |", "| --- | --- | --- | --- |"]
    verdicts = [show_verdict(overall(findings), missing(findings)) for _, findings in decided]
    for (claim, _), verdict in zip(decided, verdicts, strict=True):
        lines += [f"| {claim.text} | {claim.where} | **{verdict}** | {claim.made_by} |"]
    for (claim, findings), verdict in zip(decided, verdicts, strict=True):
        lines += ["", f"## {claim.text}", "", f"{claim.where}; {verdict}.", ""]
        lines += ["| comparison | ours | 95 % interval | seeds × n | paper | verdict |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | --- |"]
        for finding in findings:
            comparison, verdict = finding.comparison, show_verdict(finding.verdict, finding.bound or finding.why)
            cells = (comparison.text, *show_finding(finding), _size(finding), comparison.paper or "–", verdict)
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])
