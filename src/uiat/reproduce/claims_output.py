"""claims.md and claims.json: every claim with its evidence and its verdict."""

from pathlib import Path
from typing import Any

from uiat.io import write_json
from uiat.reproduce.claims import Claim, Found, decide, in_words, missing, overall
from uiat.reproduce.claims_list import all_claims
from uiat.reproduce.output import write_text
from uiat.reproduce.scales import Scale

RULE = (
    "Every comparison is stated the way the paper has it. It holds if its whole 95 % interval is above 0 (for “level”: "
    "within the margin), does not hold if all of it is below (outside), and is not measured otherwise. A claim holds "
    "if all of its comparisons do. It does not hold if one of them does not at a stricter level: 1 − 0.05 / k for the "
    "k comparisons of the claim that can be decided. Intervals of accuracies and shares are paired: over images by the "
    "bootstrap, over seeds by Student's t, combined in quadrature. With one seed the interval is over images alone, "
    "which tells of networks and not of methods, so there is no verdict. Intervals of times are Yuen's trimmed t, of "
    "logarithms of ratios, over rounds of an interleaved race."
)


def write_claims(scale: Scale, out: Path, seeds: int) -> list[tuple[Claim, list[Found]]]:
    """Decide every claim from the finished runs, write both files, and return what was found."""
    found = [(claim, decide(claim, out, seeds)) for claim in all_claims(scale)]
    write_json(
        out / "claims.json",
        {"schema": 1, "scale": scale.name, "worth": scale.worth, "rule": RULE, "claims": _records(found)},
    )
    write_text(out / "claims.md", _markdown(scale, found))
    return found


def show_difference(found: Found) -> tuple[str, str]:
    """Write a difference and its interval."""
    d, unit = found.difference, 100 if found.part.percent else 1
    if d is None:
        return "–", "–"
    digits = 2 if found.part.percent else 3
    value, low, high = (f"{unit * number:+.{digits}f}" for number in (d.value, d.low, d.high))
    return value, f"[{low}, {high}]"


def _size(found: Found) -> str:
    d = found.difference
    if d is None:
        return "–"
    return f"{d.examples} rounds" if d.over == "rounds" else f"{d.seeds} × {d.examples}"


def _records(found: list[tuple[Claim, list[Found]]]) -> list[dict[str, Any]]:
    return [
        {
            "name": claim.name,
            "claim": claim.text,
            "where": claim.where,
            "made_by": claim.made_by,
            "verdict": overall(parts),
            "missing": missing(parts) or None,
            "comparisons": [
                {
                    "text": each.part.text,
                    "unit": "share" if each.part.percent else "seconds",
                    "difference": None if each.difference is None else each.difference.value,
                    "interval95": None if each.difference is None else [each.difference.low, each.difference.high],
                    "seeds": 0 if each.difference is None else each.difference.seeds,
                    "examples": 0 if each.difference is None else each.difference.examples,
                    "over": None if each.difference is None else each.difference.over,
                    "margin": each.part.margin,
                    "paper": each.part.paper or None,
                    "verdict": each.verdict,
                    "missing": each.why or None,
                }
                for each in parts
            ],
        }
        for claim, parts in found
    ]


def _markdown(scale: Scale, found: list[tuple[Claim, list[Found]]]) -> str:
    lines = ["# The paper's claims", "", f"**{scale.banner}**. {scale.worth}", "", RULE, ""]
    lines += ["| claim | where | verdict | from |", "| --- | --- | --- | --- |"]
    verdicts = [in_words(overall(parts), missing(parts)) for _, parts in found]
    for (claim, _), verdict in zip(found, verdicts, strict=True):
        lines += [f"| {claim.text} | {claim.where} | **{verdict}** | {claim.made_by} |"]
    for (claim, parts), verdict in zip(found, verdicts, strict=True):
        lines += ["", f"## {claim.text}", "", f"{claim.where}; {verdict}.", ""]
        lines += ["| comparison | ours | 95 % interval | seeds × n | paper | verdict |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | --- |"]
        for each in parts:
            value, interval = show_difference(each)
            cells = (
                each.part.text,
                value,
                interval,
                _size(each),
                each.part.paper or "–",
                in_words(each.verdict, each.why),
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])
