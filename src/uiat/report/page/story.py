"""The head of the report: a headline, its caveats, and the example to show first."""

from collections.abc import Sequence

import torch

from uiat.report.page.comparison import RunComparison, show_p
from uiat.report.page.frames import INVERSE_FRAMES
from uiat.report.page.network_summary import NetworkSummary

STRIP = (-8, -4, 0, 4, 8, 12, 16)
"""Radii of the images in the strip, in eighths of ε."""


def headline(comparison: RunComparison) -> str:
    """Return a sentence about the best run, compared with natural training if there is such a run."""
    best = comparison.rows[0] if comparison.rows else None
    if best is None or best.robust is None:
        return "No robust accuracy has been measured for these runs yet."
    who = best.run.method
    text = f"{who[0].upper()}{who[1:]} classifies {best.robust.accuracy:.1%} of test images correctly under attack"
    if best.natural is not None:
        text += f", and {best.natural.accuracy:.1%} without"
    others = [row for row in comparison.rows[1:] if row.run.kind == "Natural" and row.robust]
    if others and others[0].robust is not None and others[0].run.data == best.run.data:
        text += f"; natural training keeps {others[0].robust.accuracy:.1%} under the same attack"
    return f"{text}."


def caveats(comparison: RunComparison) -> list[str]:
    """Return the caveats of the headline."""
    best = comparison.rows[0] if comparison.rows else None
    if best is None or best.robust is None:
        return ["Use `uiat evaluate RUN`; `uiat report` then shows the result."]
    robust, seeds = best.robust, {row.run.saved.get("seed") for row in comparison.rows}
    lines = [f"Attack: {robust.title}, on {robust.n} test images of {best.run.data_name}."]
    if len(seeds) == 1:
        lines.append("One seed: intervals are over images, and omit the variance between networks of one method.")
    if "autoattack" not in robust.attack:
        lines.append("Accuracy under one attack is an upper bound: a stronger one, such as AutoAttack, may lower it.")
    second = next((row for row in comparison.rows[1:] if row.paired), None)
    if second is not None and second.paired is not None and second.paired.p >= 0.05:
        names = f"{best.run.name} and {second.run.name}"
        lines.append(f"No significant difference between {names} on these images (p = {show_p(second.paired.p)}).")
    return lines


def opponent(summaries: Sequence[NetworkSummary]) -> int | None:
    """Return the network to show beside the first: SAT, else another that was trained on attacks, else any."""
    kinds = [summary.run.kind for summary in summaries]
    order = sorted(range(1, len(kinds)), key=lambda k: (kinds[k] != "SAT", kinds[k] == "Natural"))
    return order[0] if order else None


def hero(summary: NetworkSummary, labels: Sequence[int]) -> int:
    """Return the example with the largest changes of the true class: correct when natural, misclassified at 2ε."""
    p = summary.frames.p[torch.arange(len(labels)), :, torch.tensor(labels)]
    right = summary.frames.guess == torch.tensor(labels)[:, None]
    shows = right[:, INVERSE_FRAMES] & ~right[:, -1]
    gain = 2 * (p[:, 0] - p[:, INVERSE_FRAMES]).clamp(max=0.5) + p[:, INVERSE_FRAMES] - p[:, -1]
    return int((gain + shows.double()).argmax())
