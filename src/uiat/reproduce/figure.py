"""Figures of the paper as data: runs, points, and panels drawn from the points alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

from torch import Tensor

from uiat.evaluation.intervals import wilson
from uiat.report.figure_style import save_figure
from uiat.report.panels import Panel, PanelLine, draw_panels
from uiat.reproduce.cell import Cell
from uiat.reproduce.output import latex, many_seeds, weights_note, write_pages
from uiat.reproduce.scale import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PAGE = 40
"""Rows of a table that fit on a page of LaTeX."""


@dataclass(frozen=True)
class PlottedPoint:
    """A point of a line, in percent or in points of percent."""

    panel: str
    line: str
    x: float
    value: float
    low: float
    high: float
    std: float | None
    seeds: int
    n: int


@dataclass(frozen=True)
class Figure:
    """A figure of the paper at one scale."""

    name: str
    title: str
    scale: Scale
    needs: tuple[Cell, ...]
    """Its runs, with labels."""
    points: Callable[[Path, int], list[PlottedPoint]]
    """(folder, seeds) → the points of finished runs."""
    draw: Callable[[list[PlottedPoint], Path, int, str], "Picture"]
    """(points, folder, seeds, title) → the picture."""
    notes: tuple[str, ...] = ()
    x_name: str = "x"
    bands: str = ""
    """Meaning of low and high; empty: that of `accuracy_point`."""

    def cells(self, seeds: int) -> Iterator[Cell]:
        """Return the runs it needs."""
        for cell in self.needs:
            for seed in range(seeds):
                yield cell.at_seed(seed).labelled(*(f"{self.name}: {label}" for label in cell.labels))

    def write(self, out: Path, seeds: int) -> list[Path]:
        """Write the picture and its points; nothing before a run is finished."""
        points = self.points(out, seeds)
        if not points:
            return []
        pictures = [out / f"{self.name}.{ending}" for ending in ("svg", "png")]
        save_figure(self.draw(points, out, seeds, f"{self.title} ({self.scale.banner})"), *pictures)
        records = [{"figure": self.name, "scale": self.scale.name, **asdict(point)} for point in points]
        pages = (self._markdown(points), self._latex(points))
        return pictures + write_pages(self, out, self.caption(points), {"points": records}, pages)

    def caption(self, points: Sequence[PlottedPoint]) -> str:
        """Return the caption for some points."""
        counts = sorted({point.seeds for point in points})
        over = many_seeds(counts)
        spread = f"± a standard deviation over {over}" if counts[-1] > 1 else "95 % intervals over images (one seed)"
        if counts[0] == 1 < counts[-1]:
            spread += ", 95 % intervals over images for a single seed"
        ours = "The grid is ours: the paper gives no points."
        weights = weights_note(measure for cell in self.needs for measure in cell.measures)
        first = f"Scale {self.scale.name}, {over}; bands: {self.bands or spread}. {ours}"
        return " ".join([first, *weights, *self.notes])

    def _markdown(self, points: Sequence[PlottedPoint]) -> str:
        lines = [f"# {self.name}: {self.title}", "", f"**{self.scale.banner}**", ""]
        lines += [f"![{self.title}]({self.name}.png)", "", f"| panel | line | {self.x_name} | value | low | high |"]
        lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
        lines += [f"| {p.panel} | {p.line} | {p.x:.4g} | {p.value:.2f} | {p.low:.2f} | {p.high:.2f} |" for p in points]
        return "\n".join([*lines, "", self.caption(points), ""])

    def _latex(self, points: Sequence[PlottedPoint]) -> str:
        """Return the picture, and its points as a table that may be longer than a page."""
        table, head = ("longtable", r"\endhead") if len(points) > PAGE else ("tabular", "")
        needed = "booktabs,graphicx" + (",longtable} and one column to a page" if head else "}")
        lines = [rf"% needs \usepackage{{{needed}; the picture, and its points as a table", r"\begin{figure}"]
        lines += [r"\centering", rf"\includegraphics[width=\linewidth]{{{self.name}.png}}"]
        lines += [rf"\caption{{{latex(self.title)}. {latex(self.caption(points))}}}", rf"\label{{fig:{self.name}}}"]
        lines += [r"\end{figure}", rf"\begin{{{table}}}{{llrrrr}}", r"\toprule"]
        lines += [rf"panel & line & {latex(self.x_name)} & value & low & high \\", rf"\midrule{head}"]
        for p in points:
            numbers = f"{p.x:.4g} & {p.value:.2f} & {p.low:.2f} & {p.high:.2f}"
            lines.append(rf"{latex(p.panel)} & {latex(p.line)} & {numbers} \\")
        return "\n".join([*lines, r"\bottomrule", rf"\end{{{table}}}", ""])


def accuracy_point(panel: str, line: str, x: float, verdicts: Sequence[Tensor]) -> PlottedPoint:
    """Return an accuracy in percent from the verdicts of each seed: (examples,) of bool."""
    values, seeds, n = [100 * float(v.double().mean()) for v in verdicts], len(verdicts), len(verdicts[0])
    if seeds > 1:
        center, spread = mean(values), stdev(values)
        return PlottedPoint(panel, line, x, center, center - spread, center + spread, spread, seeds, n)
    low, high = wilson(int(verdicts[0].sum()), n)
    return PlottedPoint(panel, line, x, values[0], 100 * low, 100 * high, None, 1, n)


def lines_of(points: Sequence[PlottedPoint], panel: str) -> list[PanelLine]:
    """Return the lines of a panel, for drawing."""
    lines: dict[str, list[PlottedPoint]] = {}
    for point in points:
        if point.panel == panel:
            lines.setdefault(point.line, []).append(point)
    panel_lines = []
    for name, line in lines.items():
        line.sort(key=lambda point: point.x)
        intervals = [(point.low, point.high) for point in line]
        panel_lines.append(PanelLine(name, [point.x for point in line], [point.value for point in line], intervals))
    return panel_lines


def draw_each_panel(
    points: list[PlottedPoint], out: Path, seeds: int, title: str, *, x_label: str, gap_at: float | None = None
) -> "Picture":
    """Draw accuracies in a panel of its own for each panel's name, side by side; `gap_at` is an ε, and so is x then."""
    panels = [
        Panel(
            name, x_label, "accuracy (%)", lines_of(points, name), radii=gap_at is not None, whole=True, gap_at=gap_at
        )
        for name in dict.fromkeys(point.panel for point in points)
    ]
    return draw_panels(panels, columns=len(panels), title=title, width=4.6)
