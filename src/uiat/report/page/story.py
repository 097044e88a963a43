"""The head of the report: a headline, what it leaves open, and the example and the networks to show first."""

from collections.abc import Sequence

import torch

from uiat.report.page.comparison import Row, RunComparison, show_p
from uiat.report.page.frames import INVERSE_FRAMES
from uiat.report.page.network_summary import NetworkSummary
from uiat.report.page.runs import Evaluation

STRIP = (-8, -4, 0, 4, 8, 12, 16)
"""Radii of the images in the strip, in eighths of ε."""
AT_EPS = 2 * INVERSE_FRAMES
"""The frame of ε."""
NATURAL = "Natural"
"""The class of natural training."""


def headline(comparison: RunComparison) -> str:
    """Return a sentence on the accuracy under attack, of adversarial beside natural training if there is such a run."""
    trained, natural = _measured(comparison)
    robust = [_percent(row.robust) for row in (*trained, *natural) if row.robust]
    if not robust:
        return "No robust accuracy has been measured for these runs yet."
    if not (trained and natural):
        return f"Under attack, {(trained or natural)[0].run.label} keeps an accuracy of {robust[0]}."
    best, worst = robust[0], robust[len(trained) - 1]
    who = trained[0].run.label if len(trained) == 1 else "adversarial training"
    span = best if best == worst else f"{worst.removesuffix(' %')}–{best}"
    return f"Under attack, {who} keeps an accuracy of {span}, natural training {robust[len(trained)]}."


def details(comparison: RunComparison) -> list[str]:
    """Return sentences on natural accuracy, and on the difference between the two most robust runs."""
    trained, natural = _measured(comparison)
    without = [f"{row.run.label} {_percent(row.natural)}" for row in (*trained, *natural) if row.natural]
    lines = [f"Without attack (natural accuracy): {', '.join(without)}."] if without else []
    second = trained[1].paired if len(trained) > 1 else None
    if second is not None and trained[0] is comparison.rows[0]:
        low, high = (f"{-100 * end:+.1f}".replace("-", "−") for end in (second.high, second.low))
        size = f"{abs(100 * second.difference):.1f} points (95 % CI [{low}, {high}], p = {show_p(second.p)})"
        found = "significant for these two networks" if second.p < 0.05 else "no significant difference"
        found += ", on one seed" if len({row.run.saved.get("seed") for row in trained[:2]}) == 1 else ""
        lines.append(f"{trained[0].run.label} and {trained[1].run.label} differ by {size} under attack: {found}.")
    return lines


def _percent(evaluation: Evaluation) -> str:
    return f"{100 * evaluation.accuracy:.0f} %"


def _measured(comparison: RunComparison) -> tuple[list[Row], list[Row]]:
    """Return the runs with a robust accuracy on the data of the best: those trained on attacks, and the others."""
    rows = [row for row in comparison.rows if row.robust and row.run.data == comparison.rows[0].run.data]
    return [row for row in rows if row.run.kind != NATURAL], [row for row in rows if row.run.kind == NATURAL]


def caveats(comparison: RunComparison) -> list[str]:
    """Return the caveats of the headline."""
    best = comparison.rows[0] if comparison.rows else None
    if best is None or best.robust is None:
        return ["Use `uiat evaluate RUN`; `uiat report` then shows the result."]
    robust, seeds = best.robust, {row.run.saved.get("seed") for row in comparison.rows}
    lines = [f"Attack: {robust.title}, on {robust.n} test images of {best.run.data_name}."]
    if len(seeds) == 1:
        lines.append(
            "One seed: intervals are over images, and say nothing about other runs of a method. "
            "To compare methods, train each with several seeds (--seed 1)."
        )
    if "autoattack" not in robust.attack:
        lines.append("Accuracy under one attack is an upper bound: a stronger one, such as AutoAttack, may lower it.")
    return lines


def opponent(summaries: Sequence[NetworkSummary]) -> int | None:
    """Return the network to show beside the first: natural training, else SAT, else any."""
    kinds = [summary.run.kind for summary in summaries]
    order = sorted(range(1, len(kinds)), key=lambda k: (kinds[k] != NATURAL, kinds[k] != "SAT"))
    return order[0] if order else None


def hero(summaries: Sequence[NetworkSummary], labels: Sequence[int]) -> int:
    """Return the example on which robust and natural training differ most.

    Preferred are examples that all networks classify correctly, and at ε only those that were trained on attacks; of
    these, one that the first network misclassifies at 2ε, with the largest changes of the true class.
    """
    y = torch.tensor(labels)
    p = summaries[0].frames.p[torch.arange(len(y)), :, y]
    score = 2 * (p[:, 0] - p[:, INVERSE_FRAMES]).clamp(max=0.5) + p[:, INVERSE_FRAMES] - p[:, -1]
    for summary in summaries:
        right = summary.frames.guess == y[:, None]
        score += 4 * (right[:, INVERSE_FRAMES] & (right[:, AT_EPS] != (summary.run.kind == NATURAL)))
        score += (right[:, INVERSE_FRAMES] & ~right[:, -1]) * (summary is summaries[0])
    return int(score.argmax())
