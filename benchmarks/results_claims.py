"""The paper's claims on the results page: how many reproduced, and the numbers behind each."""

from collections import Counter
from pathlib import Path

from benchmarks.results_pairs import Published
from uiat.reproduce.claims import RULE, Claim, Finding, Verdict, decide, missing, overall, show_finding
from uiat.reproduce.claims_list import all_claims

PERFORMANCE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
TITLES: dict[Verdict, str] = {
    "holds": "Reproduced",
    "does not hold": "Not reproduced at this scale",
    "undecided": "Measured, but undecided",
    "not measured": "Without finished runs",
}
"""Headings of the claims, by verdict."""
IMPOSSIBLE = "Not testable at this scale"
Decided = list[tuple[Claim, list[Finding]]]


def judged(runs: Published) -> Decided:
    """Return every claim with what the runs show of its comparisons."""
    return [(claim, decide(claim, runs.out, runs.seeds)) for claim in all_claims(runs.scale)]


def title_of(parts: list[Finding]) -> str:
    """Return the heading under which a claim is listed."""
    testable = any(each.comparison.evidence is not None and not each.untestable for each in parts)
    return TITLES[overall(parts)] if testable else IMPOSSIBLE


def tally(findings: Decided) -> str:
    """Count the claims by their verdict, and the comparisons of those that this scale can test by theirs."""
    claims = Counter(title_of(parts) for _, parts in findings)
    testable = [each for _, parts in findings if title_of(parts) != IMPOSSIBLE for each in parts]
    single = Counter(TITLES[each.verdict] for each in testable)
    by_claim = "; ".join(
        f"{title.lower()}: {claims[title]}" for title in (*TITLES.values(), IMPOSSIBLE) if claims[title]
    )
    by_comparison = "; ".join(f"{title.lower()}: {single[title]}" for title in TITLES.values() if single[title])
    return (
        f"The paper's {len(findings)} claims: {by_claim}. A claim often has several comparisons, such as natural and "
        f"robust accuracy, and is reproduced only if all of them are. The {len(testable)} comparisons one by one: "
        f"{by_comparison}."
    )


def comparison_line(finding: Finding) -> str:
    """Return a comparison with its difference and interval, and how large an effect can be if it is undecided."""
    line = f"{finding.comparison.text}: {' '.join(show_finding(finding))}"
    return f"{line}, {finding.bound}" if finding.bound else line


def public_trades() -> str:
    """Say how UIAT's time compares with that of TRADES as public code has it, from the table of the other page."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PERFORMANCE.read_text("utf-8").splitlines()]
    head = next(row for row in rows if "/ literal TRADES" in row)
    (uiat,) = (row for row in rows if row[:1] == ["UIAT"] and len(row) == len(head))
    times = sorted(uiat[k] for k, title in enumerate(head) if title == "/ literal TRADES")
    return (
        f"against TRADES as public code has it, which recomputes f(x) at every step: {' to '.join(times)} of its time "
        "on ResNet-18 ([performance.md](performance.md)); the differences above are to our TRADES"
    )


def verdicts(findings: Decided) -> list[str]:
    """Return the claims by their verdict, with the numbers behind each comparison that was measured."""
    groups: dict[str, list[str]] = {title: [] for title in [*TITLES.values(), IMPOSSIBLE]}
    for claim, parts in findings:
        measured = [each for each in parts if each.difference is not None]
        title = title_of(parts)
        no_data = all(each.comparison.evidence is None for each in parts)
        why = "no such data" if no_data else missing(parts) if measured or title == IMPOSSIBLE else ""
        groups[title].append(f"- {claim.text} ({claim.where})" + (f": {why}." if why else "."))
        groups[title] += [f"  - {comparison_line(each)}" for each in measured]
        if claim.name == "uiat-faster-than-trades":
            groups[title] += [f"  - {public_trades()}"]
    lines = ["## What reproduced, and what did not", "", f"Differences are in points of percent. {RULE}", ""]
    for title, items in groups.items():
        if items or title in (TITLES["holds"], TITLES["does not hold"]):
            count = sum(item.startswith("-") for item in items)
            lines += [f"**{title}: {count} of {len(findings)} claims**", "", *items, *([""] if items else [])]
    return lines
