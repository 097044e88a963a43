"""A figure of the paper as data: the runs it needs, its points, and panels that are drawn from the points alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

from torch import Tensor

from uiat.evaluation.accuracy import wilson
from uiat.io import write_json
from uiat.report.figure import save_figure
from uiat.report.panels import Series
from uiat.reproduce.cell import Cell
from uiat.reproduce.output import latex, many_seeds, records_csv, write_text
from uiat.reproduce.scales import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PAGE = 40
"""Lines of a table that a page of LaTeX holds."""
ENDINGS = ("svg", "png", "md", "csv", "json", "tex")


@dataclass(frozen=True)
class Point:
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
    points: Callable[[Path, int], list[Point]]
    """(folder, seeds) → the points of finished runs."""
    draw: Callable[[list[Point], Path, int, str], "Picture"]
    """(points, folder, seeds, title) → the picture."""
    notes: tuple[str, ...] = ()
    x_name: str = "x"
    bands: str = ""
    """What low and high are; empty: as `accuracy_point` makes them."""

    def cells(self, seeds: int) -> Iterator[Cell]:
        """Return the runs it needs."""
        for cell in self.needs:
            for seed in range(seeds):
                yield cell.at_seed(seed).labelled(*(f"{self.name}: {label}" for label in cell.labels))

    def write(self, out: Path, seeds: int) -> list[Path]:
        """Write the picture and its points; nothing, where no run is finished."""
        points = self.points(out, seeds)
        if not points:
            return []
        paths = {ending: out / f"{self.name}.{ending}" for ending in ENDINGS}
        heading = f"{self.title} ({self.scale.banner})"
        save_figure(self.draw(points, out, seeds, heading), paths["svg"], paths["png"])
        records = [{"figure": self.name, "scale": self.scale.name, **asdict(point)} for point in points]
        write_text(paths["csv"], records_csv(records))
        facts = {"schema": 1, "name": self.name, "title": self.title, "scale": self.scale.name}
        write_json(paths["json"], {**facts, "caption": self.caption(points), "points": records})
        write_text(paths["md"], self._markdown(points))
        write_text(paths["tex"], self._latex(points))
        return list(paths.values())

    def caption(self, points: Sequence[Point]) -> str:
        """Say what the points are."""
        counts = sorted({point.seeds for point in points})
        over = many_seeds(counts)
        spread = f"± a standard deviation over {over}" if counts[-1] > 1 else "95 % intervals over images (one seed)"
        if counts[0] == 1 < counts[-1]:
            spread += ", 95 % intervals over images where there is one"
        ours = "The grid is ours: the paper gives no points."
        return " ".join([f"Scale {self.scale.name}, {over}; bands: {self.bands or spread}. {ours}", *self.notes])

    def _markdown(self, points: Sequence[Point]) -> str:
        lines = [
            f"# {self.name}: {self.title}",
            "",
            f"**{self.scale.banner}**",
            "",
            f"![{self.title}]({self.name}.png)",
        ]
        lines += [
            "",
            f"| panel | line | {self.x_name} | value | low | high |",
            "| --- | --- | ---: | ---: | ---: | ---: |",
        ]
        lines += [f"| {p.panel} | {p.line} | {p.x:.4g} | {p.value:.2f} | {p.low:.2f} | {p.high:.2f} |" for p in points]
        return "\n".join([*lines, "", self.caption(points), ""])

    def _latex(self, points: Sequence[Point]) -> str:
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


def accuracy_point(panel: str, line: str, x: float, verdicts: Sequence[Tensor]) -> Point:
    """Return an accuracy in percent from the verdicts of each seed: (examples,) of bool."""
    values = [100 * float(v.double().mean()) for v in verdicts]
    n = len(verdicts[0])
    if len(values) > 1:
        spread = stdev(values)
        return Point(panel, line, x, mean(values), mean(values) - spread, mean(values) + spread, spread, len(values), n)
    low, high = wilson(int(verdicts[0].sum()), n)
    return Point(panel, line, x, values[0], 100 * low, 100 * high, None, 1, n)


def series(points: Sequence[Point], panel: str, line: str) -> Series:
    """Return the points of a line, for drawing."""
    own = sorted((p for p in points if (p.panel, p.line) == (panel, line)), key=lambda p: p.x)
    return Series(line, [p.x for p in own], [p.value for p in own], [(p.low, p.high) for p in own])


def lines_of(points: Sequence[Point], panel: str) -> list[Series]:
    """Return all lines of a panel."""
    return [series(points, panel, line) for line in dict.fromkeys(p.line for p in points if p.panel == panel)]
