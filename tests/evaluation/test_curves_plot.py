"""Plots of curves: their content, and the unit of the axis."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from uiat.report.figure_style import in_levels, save_figure, show_radius, ticks
from uiat.report.panels import Panel, PanelLine, draw_panels

GRID = tuple(k / 255 for k in range(-8, 17, 2))
EASIER = PanelLine("easier half", GRID, [100.0 - k for k in range(13)], [(80.0, 100.0)] * 13)
HARDER = PanelLine("harder half", GRID, [90.0 - 5 * k for k in range(13)], [(20.0, 90.0)] * 13)


def draw(*lines: PanelLine, title: str = "", gap_at: float | None = None, zero: bool = False) -> Figure:
    panel = Panel("", "ε", "accuracy (%)", lines, radii=True, whole=not zero, zero=zero, gap_at=gap_at)
    return draw_panels([panel], columns=1, title=title)


def test_pixel_levels_and_decimals() -> None:
    assert in_levels(GRID)
    assert not in_levels((-0.2, 0.0, 0.2))  # equals 51/255, but is shown as a decimal
    assert not in_levels((8 / 255, 0.1))
    assert [show_radius(v, True) for v in (-8 / 255, 0.0, 16 / 255)] == ["−8/255", "0", "16/255"]
    assert [show_radius(v, False) for v in (-0.15000000000000002, 0.0, 0.4)] == ["−0.15", "0", "0.4"]


def test_few_ticks_with_zero_among_them() -> None:
    assert [round(255 * v) for v in ticks(GRID)] == [-8, -4, 0, 4, 8, 12, 16]
    assert ticks((-3.0, -2.0, -1.0, 0.0, *map(float, range(1, 12)))) == [-2, 0, 2, 4, 6, 8, 10]
    assert ticks((0.1, 0.2)) == [0.1, 0.2]


def test_two_lines_differ_in_colour_and_style() -> None:
    (axes,) = draw(EASIER, HARDER, gap_at=8 / 255, title="$a run$").axes
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    first, second, zero = (lines[name] for name in ("easier half", "harder half", "natural images"))
    assert list(first.get_ydata()) == EASIER.values  # type: ignore[arg-type]
    assert list(second.get_xdata()) == list(GRID)  # type: ignore[arg-type]
    assert list(zero.get_xdata()) == [0, 0]  # type: ignore[arg-type]
    for trait in ("get_color", "get_linestyle", "get_marker"):
        assert getattr(first, trait)() != getattr(second, trait)()
    texts = [text.get_text() for text in axes.texts]
    assert "gap 42.0 points\nat ε = 8/255" in texts
    assert axes.get_xticklabels()[0].get_text() == "−8/255"


def test_no_gap_where_the_grid_has_no_such_radius() -> None:
    (axes,) = draw(EASIER, HARDER, gap_at=0.5).axes
    assert [text.get_text() for text in axes.texts] == []


def test_a_difference_has_a_line_at_zero() -> None:
    (axes,) = draw(PanelLine("difference", GRID, [1.0] * 13, [(0.0, 2.0)] * 13), zero=True).axes
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert list(lines["no difference"].get_ydata()) == [0, 0]  # type: ignore[arg-type]


def test_the_files_are_pictures_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        figure = draw(EASIER, HARDER, gap_at=8 / 255, title="run")
        save_figure(figure, tmp_path / f"{name}.png", tmp_path / f"{name}.svg")
    pixels = imread(tmp_path / "a.png")
    assert pixels.shape[0] > 400
    assert float(pixels[..., :3].std()) > 0.02
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    for end in ("png", "svg"):
        assert (tmp_path / f"a.{end}").read_bytes() == (tmp_path / f"b.{end}").read_bytes()


@pytest.mark.parametrize("gap_at", [GRID[0], GRID[-1]])
def test_the_gap_stays_in_the_picture(gap_at: float) -> None:
    figure = draw(EASIER, HARDER, gap_at=gap_at)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for text in axes.texts:
        box = text.get_window_extent()
        assert 0 <= box.x0 <= box.x1 <= figure.bbox.width
        assert 0 <= box.y0 <= box.y1 <= figure.bbox.height
