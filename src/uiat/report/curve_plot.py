"""The files of `uiat curves`: JSON, CSV and figures."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from uiat.evaluation.curve_measurement import CurveVerdicts
from uiat.evaluation.intervals import paired, wilson
from uiat.evaluation.subject import LoadedSubject, subject_facts
from uiat.io import atomic, write_json
from uiat.report.figure_style import save_figure
from uiat.report.panels import Panel, PanelLine, draw_panels
from uiat.runs.result_card import environment


def write_curves(folder: Path, subject: LoadedSubject, attack: str, curve: CurveVerdicts) -> None:
    """Write curves.json, curves.csv, curves.png and curves.svg."""
    lines = {name: accuracy_line(name, curve.grid, correct) for name, correct in curve.groups().items()}
    gaps = [easy - hard for easy, hard in zip(lines["easier"].values, lines["harder"].values, strict=True)]
    eps = subject.base.eps
    content = {
        **subject_facts(subject),
        "ranked_by": "cross-entropy on natural images, lower is easier",
        "images": {name: correct.shape[1] for name, correct in curve.groups().items()},
        "grid": list(curve.grid),
        "accuracy": {name: list(line.values) for name, line in lines.items()},
        "interval95": {name: [list(pair) for pair in line.intervals] for name, line in lines.items()},
        "gap": gaps,
        "gap_at_eps": {"eps": eps, "gap": gaps[curve.grid.index(eps)]} if eps in curve.grid else None,
        **_setting(subject, attack, curve),
    }
    write_json(folder / "curves.json", content)
    _write_csv(folder / "curves.csv", curve, lines, gaps)
    halves = [in_percent(f"{name} half", lines[name]) for name in ("easier", "harder")]
    panel = Panel("", "ε", "accuracy (%)", halves, radii=True, whole=True, gap_at=eps)
    _draw(folder / "curves", panel, (subject,), attack)


def write_difference(
    folder: Path, pair: tuple[LoadedSubject, LoadedSubject], attack: str, curves: tuple[CurveVerdicts, CurveVerdicts]
) -> None:
    """Write difference.json, .png and .svg: the accuracies of the first network minus those of the second."""
    first, second = (curve.correct.double() for curve in curves)
    differences = [paired((a - b)[None]) for a, b in zip(first, second, strict=True)]
    line = PanelLine(
        "difference", curves[0].grid, [d.value for d in differences], [(d.low, d.high) for d in differences]
    )
    content = {
        **subject_facts(pair[0]),
        "against": subject_facts(pair[1]),
        "grid": list(line.x),
        "accuracy": {"target": first.mean(dim=1).tolist(), "against": second.mean(dim=1).tolist()},
        "difference": list(line.values),
        "interval95": [list(interval) for interval in line.intervals],
        **_setting(pair[0], attack, curves[0]),
    }
    write_json(folder / "difference.json", content)
    label = "difference of accuracies (points)"
    panel = Panel("", "ε", label, [in_percent("difference", line)], radii=True, zero=True)
    _draw(folder / "difference", panel, pair, attack)


def accuracy_line(label: str, grid: tuple[float, ...], correct: Tensor) -> PanelLine:
    """Return accuracies and Wilson intervals of (points, examples) verdicts, as shares."""
    n = correct.shape[1]
    counts = [int(row.sum()) for row in correct]
    return PanelLine(label, grid, [count / n for count in counts], [wilson(count, n) for count in counts])


def in_percent(label: str, line: PanelLine) -> PanelLine:
    """Return a line of shares in percent, under another label."""
    intervals = [(100 * low, 100 * high) for low, high in line.intervals]
    return PanelLine(label, line.x, [100 * value for value in line.values], intervals)


def _draw(path: Path, panel: Panel, networks: Sequence[LoadedSubject], attack: str) -> None:
    names, subject = " − ".join(network.target.resolve().name for network in networks), networks[0]
    title = f"{names}: {attack} on {subject.options.data.name}, {len(subject.images)} images"
    figure = draw_panels([panel], columns=1, title=title, width=6.4, height=3.6)
    save_figure(figure, path.with_suffix(".png"), path.with_suffix(".svg"))


def _setting(subject: LoadedSubject, attack: str, curve: CurveVerdicts) -> dict[str, Any]:
    return {
        "attack": attack,
        "norm": subject.base.norm,
        "perturbations": [{"kind": point.name, **point.setting} for point in curve.points],
        "seconds": [round(seconds, 3) for seconds in curve.seconds],
        "notices": list(curve.notices),
        "environment": environment(subject.device),
    }


def _write_csv(path: Path, curve: CurveVerdicts, lines: dict[str, PanelLine], gaps: list[float]) -> None:
    parts = [f"{name}{end}" for name in lines for end in ("", "_low", "_high")]
    with atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["eps", "perturbation", *parts, "gap"])
        for k, point in enumerate(curve.points):
            numbers = [n for line in lines.values() for n in (line.values[k], *line.intervals[k])]
            rows.writerow([point.eps, point.name, *numbers, gaps[k]])
