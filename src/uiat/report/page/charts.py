"""Geometry of a chart: lines, ticks and coordinates. templates/charts.html.j2 draws it as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass, field

LEFT, RIGHT, TOP, BOTTOM = 60, 394, 10, 216
"""The plot area within the SVG."""
Ticks = Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Series:
    """One line."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    band: Sequence[tuple[float, float]] = ()
    """95 % confidence intervals, if there are any."""
    style: int = 0
    """Index of a line style of the style sheet: colour, dashes and markers."""
    group: str = ""
    """The page shows the lines of one group at a time."""


@dataclass(frozen=True)
class Chart:
    """Lines in a frame."""

    title: str
    x_ticks: Ticks
    y_ticks: Ticks
    x_label: str
    y_label: str
    lines: Sequence[Series]
    about: str
    """Description for screen readers, after the title."""
    marks: dict[str, float] = field(default_factory=dict)
    """Vertical lines, by label."""
    box: tuple[int, int, int, int] = (LEFT, RIGHT, BOTTOM, TOP)

    @property
    def ends(self) -> tuple[float, float, float, float]:
        """The values at the edges of the plot area: left, right, bottom, top."""
        return self.x_ticks[0][0], self.x_ticks[-1][0], self.y_ticks[0][0], self.y_ticks[-1][0]

    def across(self, x: float) -> float:
        """Return the horizontal coordinate of x."""
        first, last, _, _ = self.ends
        return round(LEFT + (x - first) / (last - first) * (RIGHT - LEFT), 1)

    def up(self, y: float) -> float:
        """Return the vertical coordinate of y."""
        _, _, first, last = self.ends
        return round(BOTTOM - (y - first) / (last - first) * (BOTTOM - TOP), 1)

    def path(self, x: Sequence[float], y: Sequence[float]) -> str:
        """Return the line through the points, as an SVG path."""
        return "M" + "L".join(f"{self.across(a)} {self.up(b)}" for a, b in zip(x, y, strict=True))

    def area(self, line: Series) -> str:
        """Return the outline of the intervals of a line, as an SVG path."""
        lows, highs = zip(*line.band, strict=True)
        return self.path([*line.x, *reversed(line.x)], [*lows, *reversed(highs)]) + "Z"


def percent_ticks() -> Ticks:
    """Return ticks from 0 to 100 %."""
    return [(k / 5, f"{20 * k} %") for k in range(6)]


def value_ticks(largest: float) -> Ticks:
    """Return five round ticks from 0 that reach the largest value."""
    rough = max(largest, 1e-9) / 4
    size = 10.0 ** int(f"{rough:e}".rpartition("e")[2])
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= rough * 0.999)
    return [(k * step, f"{k * step:.4g}") for k in range(5)]


def epoch_ticks(epochs: int) -> Ticks:
    """Return whole epochs from 0, before the first, to the last."""
    return [(epoch, str(epoch)) for epoch in sorted({round(k * epochs / 5) for k in range(6)})]
