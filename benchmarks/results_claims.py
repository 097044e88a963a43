"""The paper's claims on the results page: how many reproduced, and the numbers behind each."""

from collections import Counter

from benchmarks.results_pairs import Published
from uiat.reproduce.claims import RULE, Claim, Finding, Verdict, decide, missing, overall, show_difference
from uiat.reproduce.claims_list import all_claims

TITLES: dict[Verdict, str] = {
    "holds": "Reproduced",
    "does not hold": "Not reproduced at this scale",
    "undecided": "Measured, but undecided",
    "not measured": "Without finished runs",
}
"""Headings of the claims, by verdict."""
IMPOSSIBLE = "Not tested at this scale, which has no such data"
Decided = list[tuple[Claim, list[Finding]]]


def judged(runs: Published) -> Decided:
    """Return every claim with what the runs show of its comparisons."""
    return [(claim, decide(claim, runs.out, runs.seeds)) for claim in all_claims(runs.scale)]


def title_of(parts: list[Finding]) -> str:
    """Return the heading under which a claim is listed."""
    testable = any(each.comparison.evidence is not None for each in parts)
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


def verdicts(findings: Decided) -> list[str]:
    """Return the claims by their verdict, with the numbers behind each comparison that was measured."""
    groups: dict[str, list[str]] = {title: [] for title in [*TITLES.values(), IMPOSSIBLE]}
    for claim, parts in findings:
        measured = [each for each in parts if each.difference is not None]
        why = missing(parts) if measured else ""
        title = title_of(parts)
        groups[title].append(f"- {claim.text} ({claim.where})" + (f": {why}." if why else "."))
        groups[title] += [f"  - {each.comparison.text}: {' '.join(show_difference(each))}" for each in measured]
    lines = ["## What reproduced, and what did not", "", f"Differences are in points of percent. {RULE}", ""]
    for title, items in groups.items():
        if items or title in (TITLES["holds"], TITLES["does not hold"]):
            count = sum(item.startswith("-") for item in items)
            lines += [f"**{title}: {count} of {len(findings)} claims**", "", *items, *([""] if items else [])]
    return lines
