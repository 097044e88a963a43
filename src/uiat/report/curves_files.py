"""The files of `uiat curves`: numbers for programs, a table for spreadsheets, pictures for people."""

import csv
from pathlib import Path
from typing import Any

from torch import Tensor

from uiat.evaluation.accuracy import wilson
from uiat.evaluation.curves import Curve, paired_difference
from uiat.evaluation.subject import Ready, facts
from uiat.io import atomic, write_json
from uiat.report.curves_plot import Line, draw_curves, draw_difference
from uiat.report.figure import save_figure
from uiat.runs.card import environment


def write_curves(folder: Path, ready: Ready, attack: str, curve: Curve) -> None:
    """Write curves.json, curves.csv, curves.png and curves.svg."""
    lines = {name: to_line(name, correct) for name, correct in curve.groups().items()}
    gaps = [easy - hard for easy, hard in zip(lines["easier"].values, lines["harder"].values, strict=True)]
    eps = ready.base.eps
    content = {
        **facts(ready),
        "ranked_by": "cross-entropy on natural images, lower is easier",
        "images": {name: correct.shape[1] for name, correct in curve.groups().items()},
        "grid": list(curve.grid),
        "accuracy": {name: list(line.values) for name, line in lines.items()},
        "interval95": {name: [list(pair) for pair in line.intervals] for name, line in lines.items()},
        "gap": gaps,
        "gap_at_eps": {"eps": eps, "gap": gaps[curve.grid.index(eps)]} if eps in curve.grid else None,
        **_setting(ready, attack, curve),
    }
    write_json(folder / "curves.json", content)
    _write_csv(folder / "curves.csv", curve, lines, gaps)
    halves = [Line(f"{name} half", lines[name].values, lines[name].intervals) for name in ("easier", "harder")]
    title = f"{_name(ready)}: {attack} on {ready.options.data.name}, {len(ready.images)} images"
    figure = draw_curves(curve.grid, halves[0], halves[1], gap_at=eps, title=title)
    save_figure(figure, folder / "curves.png", folder / "curves.svg")


def write_difference(folder: Path, pair: tuple[Ready, Ready], attack: str, curves: tuple[Curve, Curve]) -> None:
    """Write difference.json, difference.png and difference.svg: the first network's accuracies − the second's."""
    both = list(zip(curves[0].correct, curves[1].correct, strict=True))
    found = [paired_difference(first, second) for first, second in both]
    content = {
        **facts(pair[0]),
        "against": facts(pair[1]),
        "grid": list(curves[0].grid),
        "accuracy": {
            "target": [float(first.double().mean()) for first, _ in both],
            "against": [float(second.double().mean()) for _, second in both],
        },
        "difference": [value for value, _ in found],
        "interval95": [list(interval) for _, interval in found],
        **_setting(pair[0], attack, curves[0]),
    }
    write_json(folder / "difference.json", content)
    line = Line("difference", [value for value, _ in found], [interval for _, interval in found])
    title = (
        f"{_name(pair[0])} − {_name(pair[1])}: {attack} on {pair[0].options.data.name}, {len(pair[0].images)} images"
    )
    figure = draw_difference(curves[0].grid, line, title=title)
    save_figure(figure, folder / "difference.png", folder / "difference.svg")


def to_line(label: str, correct: Tensor) -> Line:
    """Return accuracies and Wilson intervals of (points, examples) verdicts."""
    n = correct.shape[1]
    counts = [int(row.sum()) for row in correct]
    return Line(label, [count / n for count in counts], [wilson(count, n) for count in counts])


def _name(ready: Ready) -> str:
    return ready.target.resolve().name


def _setting(ready: Ready, attack: str, curve: Curve) -> dict[str, Any]:
    return {
        "attack": attack,
        "norm": ready.base.norm,
        "perturbations": [{"kind": point.kind, **point.setting} for point in curve.points],
        "seconds": [round(seconds, 3) for seconds in curve.seconds],
        "notices": list(curve.notices),
        "environment": environment(ready.device),
    }


def _write_csv(path: Path, curve: Curve, lines: dict[str, Line], gaps: list[float]) -> None:
    parts = [f"{name}{end}" for name in lines for end in ("", "_low", "_high")]
    with atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["eps", "perturbation", *parts, "gap"])
        for k, point in enumerate(curve.points):
            numbers = [n for line in lines.values() for n in (line.values[k], *line.intervals[k])]
            rows.writerow([point.eps, point.kind, *numbers, gaps[k]])
