"""What the page says first: one sentence, the caveats that belong to it, and the example that shows it."""

from collections.abc import Sequence

import torch

from uiat.report.page.comparison import RunComparison, show_p
from uiat.report.page.frames import FRIENDS
from uiat.report.page.network_summary import NetworkSummary

STRIP = (-8, -4, 0, 4, 8, 12, 16)
"""The frames of the strip, in eighths of ε."""


def headline(comparison: RunComparison) -> str:
    """Return one sentence about the best run, against natural training where there is such a run."""
    best = comparison.rows[0] if comparison.rows else None
    if best is None or best.robust is None:
        return "No robust accuracy has been measured for these runs yet."
    who = best.run.method
    text = f"{who[0].upper()}{who[1:]} classifies {best.robust.accuracy:.1%} of test images right under attack"
    if best.natural is not None:
        text += f", and {best.natural.accuracy:.1%} without"
    others = [row for row in comparison.rows[1:] if row.run.kind == "Natural" and row.robust]
    if others and others[0].robust is not None and others[0].run.data == best.run.data:
        text += f"; natural training keeps {others[0].robust.accuracy:.1%} under the same attack"
    return f"{text}."


def caveats(comparison: RunComparison) -> list[str]:
    """Return what must be known of that sentence."""
    best = comparison.rows[0] if comparison.rows else None
    if best is None or best.robust is None:
        return ["`uiat evaluate RUN` measures a run; `uiat report` then shows it."]
    robust, seeds = best.robust, {row.run.saved.get("seed") for row in comparison.rows}
    lines = [f"Attack: {robust.title}, on {robust.n} test images of {best.run.data_name}."]
    if len(seeds) == 1:
        lines.append("One seed: intervals are over images, and leave out how much networks of one method differ.")
    if "autoattack" not in robust.attack:
        lines.append("Accuracy under one attack is an upper bound: a stronger one, such as AutoAttack, may find more.")
    second = next((row for row in comparison.rows[1:] if row.paired), None)
    if second is not None and second.paired is not None and second.paired.p >= 0.05:
        names = f"{best.run.name} and {second.run.name}"
        lines.append(f"{names} do not differ clearly on these images (p = {show_p(second.paired.p)}).")
    return lines


def opponent(looks: Sequence[NetworkSummary]) -> int | None:
    """Return the network to show beside the first: SAT, else another that was attacked in training, else any."""
    order = sorted(range(1, len(looks)), key=lambda k: (looks[k].run.kind != "SAT", looks[k].run.kind == "Natural"))
    return order[0] if order else None


def hero(look: NetworkSummary, labels: Sequence[int]) -> int:
    """Return the example whose true class gains and loses most: right without a perturbation, wrong at 2ε."""
    p = look.frames.p[torch.arange(len(labels)), :, torch.tensor(labels)]
    right = look.frames.guess == torch.tensor(labels)[:, None]
    shows = right[:, FRIENDS] & ~right[:, -1]
    gain = 2 * (p[:, 0] - p[:, FRIENDS]).clamp(max=0.5) + p[:, FRIENDS] - p[:, -1]
    return int((gain + shows.double()).argmax())
