"""The HTML report: one self-contained file, which loads nothing when it is opened."""

import base64
import hashlib
import io
import zlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from uiat import __version__
from uiat.report.figure_style import in_levels, show_radius, ticks
from uiat.report.page.charts import Chart, Series, epoch_ticks, percent_ticks, value_ticks
from uiat.report.page.comparison import RunComparison, cells, flatten, notes, show_setting
from uiat.report.page.frames import INVERSE_FRAMES
from uiat.report.page.network_summary import GROUPS, NO_CLASS, NetworkSummary, SummaryOptions
from uiat.report.page.runs import Run
from uiat.report.page.story import AT_EPS, STRIP, caveats, details, headline, hero, opponent

MOST_BARS = 12
"""Largest number of classes of which bars and confusion show all; of more, an example shows the likeliest."""
GRID_ROWS = 6


def render(
    comparison: RunComparison,
    summaries: Sequence[NetworkSummary],
    examples: Tensor,
    easier: Tensor,
    options: SummaryOptions,
    *,
    reason: str,
) -> str:
    """Return the page.

    Args:
        comparison: the runs side by side.
        summaries: the measurements of runs; all have frames of the same examples.
        examples: the positions of these examples among the images.
        easier: which of them are in the easier half.
        options: what was measured.
        reason: why there are no summaries; empty if there are some.
    """
    environment = Environment(
        loader=PackageLoader("uiat.report.page"),
        autoescape=select_autoescape(["j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda share: f"{100 * share:.1f}"
    environment.filters["png"], environment.filters["radius"] = png, show_eps
    templates = files("uiat.report.page").joinpath("templates")
    script, style = (templates.joinpath(name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    measured = [summary.run for summary in summaries]
    context: dict[str, Any] = {
        "version": __version__,
        "script": Markup(script),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "style": Markup(style),
        "headline": headline(comparison),
        "details": details(comparison),
        "caveats": caveats(comparison),
        "comparison": comparison,
        "rows": [(row, cells(row.run.name, [row], row.paired)) for row in comparison.rows],
        "notes": notes(comparison),
        "learning": [(row.run, _learning(row.run)) for row in comparison.rows],
        "configs": [(row.run, _settings(row.run)) for row in comparison.rows],
        "options": options,
        "summaries": summaries,
        "reason": reason,
        "omitted": [row.run.label for row in comparison.rows if row.run not in measured] if summaries else [],
    }
    if summaries:
        context |= _pictures(summaries, examples, easier)
    return environment.get_template("page.html.j2").render(context)


def _settings(run: Run) -> dict[str, str]:
    return {name: show_setting(value) for name, value in flatten(run.saved).items()}


def show_eps(eps: float) -> str:
    """Write a radius as k/255 or as a short decimal."""
    return show_radius(eps, in_levels((eps,)))


def png(pixels: Tensor) -> str:
    """Return a uint8 image (C, H, W) as the data URL of a PNG."""
    array = pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).contiguous().numpy()
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"


def _learning(run: Run) -> list[Chart]:
    """Return the learning curves of a run so far."""
    if not run.epochs:
        return []
    batches = "training batches" if run.kind == "Natural" else "training batches, attacked"
    names = {
        "val_natural": "validation, natural images",
        "val_robust": "validation, attacked",
        "train_accuracy": batches,
    }
    parts = {name: name.removeprefix("loss_") for line in run.epochs for name in line if name.startswith("loss")}
    charts = [
        _chart(run, "Accuracy", _series(run, names), percent_ticks(), "accuracy"),
        _chart(run, "Loss and its terms, unweighted", _series(run, {**parts, "loss": "total"}), None, "loss"),
    ]
    if run.steps:
        last = max(int(line["step"]) for line in run.steps)
        x = [line["epoch"] - 1 + line["step"] / last for line in run.steps]
        rate = [Series("learning rate", x, [float(line["lr"]) for line in run.steps])]
        charts.append(_chart(run, "Learning rate", rate, None, "learning rate"))
    return charts


def _series(run: Run, names: dict[str, str]) -> list[Series]:
    series = []
    for style, (name, label) in enumerate(names.items()):
        lines = [line for line in run.epochs if name in line]
        x, y = [float(line["epoch"]) for line in lines], [float(line[name]) for line in lines]
        series.append(Series(label, x, y, style=style))
    return series


def _chart(run: Run, title: str, lines: list[Series], y_ticks: Any, y_label: str) -> Chart:
    most = max((value for line in lines for value in line.y), default=1.0)
    marks = {name: float(epoch) for name, epoch in run.marks().items()}
    about = f"{run.label}, last values: " + ", ".join(f"{line.label} {line.y[-1]:.3g}" for line in lines if line.y)
    across = epoch_ticks(run.config.train.epochs)
    return Chart(title, across, y_ticks or value_ticks(most), "epoch", y_label, lines, about, marks)


def _pictures(summaries: Sequence[NetworkSummary], examples: Tensor, easier: Tensor) -> dict[str, Any]:
    """Return the context of the sections with images."""
    first, other = summaries[0], opponent(summaries)
    labels = first.images.y[examples].tolist()
    radii = [show_radius(eps, in_levels(first.frames.grid)) for eps in first.frames.grid]
    best = hero(summaries, labels)
    return {
        "labels": labels,
        "radii": radii,
        "strip": [INVERSE_FRAMES + k for k in STRIP],
        "hero": best,
        "hero_place": int(examples[best]),
        "columns": [("inverse", INVERSE_FRAMES // 2), ("natural image", INVERSE_FRAMES), ("adversarial", AT_EPS)],
        "firsts": [labels.index(label) for label in sorted(set(labels))][:GRID_ROWS],
        "curve": _curve(summaries),
        "payload": _payload(summaries, examples, easier, labels, radii) | {"hero": best, "right": other},
        "few": len(first.images.classes) <= MOST_BARS,
        "mistakes": mistakes,
    }


def _curve(summaries: Sequence[NetworkSummary]) -> Chart:
    grid = max((summary.curve.grid for summary in summaries), key=len)
    if len(grid) == 1:  # a single ε gives the axis no length
        grid = tuple(sorted({*grid, *summaries[0].frames.grid}))
    levels = in_levels(grid)
    shown = sorted({grid[0], grid[-1], *ticks(grid)})
    lines = [
        Series(name, line.grid, line.accuracy[group], line.interval[group], k, group)
        for group in GROUPS
        for k, (name, line) in enumerate((summary.run.label, summary.curve) for summary in summaries)
    ]
    about = "; ".join(f"{line.label} {line.y[0]:.0%} to {line.y[-1]:.0%}" for line in lines if line.group == "all")
    x_ticks = [(eps, show_radius(eps, levels)) for eps in shown]
    return Chart(
        "Accuracy against ε",
        x_ticks,
        percent_ticks(),
        "ε (below 0: inverse)",
        "accuracy",
        lines,
        about,
        {"natural images": 0},
    )


def mistakes(counts: Tensor, classes: tuple[str, ...]) -> list[tuple[str, str, int]]:
    """Return the most frequent mistakes of a confusion: true class, predicted class, how often."""
    wrong = counts.clone().fill_diagonal_(0).flatten()
    places = wrong.argsort(descending=True, stable=True)[:6].tolist()
    size, names = counts.shape[1], (*classes, NO_CLASS)
    return [(classes[p // size], names[p % size], int(wrong[p])) for p in places if wrong[p]]


def _payload(
    summaries: Sequence[NetworkSummary], examples: Tensor, easier: Tensor, labels: list[int], radii: list[str]
) -> dict[str, Any]:
    """Return the data of the page's script: frames as differences of pixel levels, and probabilities."""
    natural, classes = summaries[0].frames.pixels[:, INVERSE_FRAMES], summaries[0].images.classes
    shown = [_shown(summaries, k, label) for k, label in enumerate(labels)]
    return {
        "classes": [*classes, NO_CLASS],
        "shape": list(natural.shape[1:]),
        "radii": radii,
        "zero": INVERSE_FRAMES,
        "grid": list(summaries[0].frames.grid),
        "examples": [
            {"y": label, "place": int(place), "easier": bool(easy), "shown": bars, "pixels": _packed(pixels)}
            for label, place, easy, bars, pixels in zip(labels, examples, easier, shown, natural, strict=True)
        ],
        "runs": [
            {
                "name": summary.run.name,
                "label": summary.run.label,
                "frames": [_packed(_steps(frames)) for frames in summary.frames.pixels],
                "p": [_rounded(p[:, bars]) for p, bars in zip(summary.frames.p, shown, strict=True)],
                "guess": summary.frames.guess.tolist(),
                "curve": {"grid": list(summary.curve.grid), **summary.curve.accuracy},
            }
            for summary in summaries
        ],
    }


def _shown(summaries: Sequence[NetworkSummary], example: int, label: int) -> list[int]:
    """Return the classes for which an example shows bars, in their order."""
    most = torch.stack([summary.frames.p[example].amax(dim=0) for summary in summaries]).amax(dim=0)
    if len(most) <= MOST_BARS:
        return list(range(len(most)))
    return sorted({label, *most.topk(MOST_BARS - 2).indices.tolist()})


def _rounded(p: Tensor) -> list[list[int]]:
    """Return probabilities in ten-thousandths."""
    return [[round(10_000 * value) for value in row] for row in p.tolist()]


def _steps(frames: Tensor) -> Tensor:
    """Return the difference of each frame from the one nearer to the natural image, modulo 256, from 0 to −ε first."""
    below = [frames[k] - frames[k + 1] for k in range(INVERSE_FRAMES - 1, -1, -1)]
    return torch.stack([*below, *(frames[k] - frames[k - 1] for k in range(INVERSE_FRAMES + 1, len(frames)))])


def _packed(pixels: Tensor) -> str:
    return base64.b64encode(zlib.compress(pixels.contiguous().numpy().tobytes(), 9)).decode()
