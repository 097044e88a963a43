"""Shared style of figures: colours, axes of radii, fonts and saving."""

import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from uiat.io import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ft2font import FT2Font

BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
"""From the colour-blind-safe palette of Okabe and Ito; grey is for guiding lines."""
DPI = 160
MOST_TICKS = 9


def new_figure(width: float, height: float) -> "Figure":
    """Return a figure of this size in inches, without a window or global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: "Figure", *paths: Path) -> None:
    """Save a figure in the format of each path's suffix; equal figures give equal bytes."""
    from matplotlib import rc_context

    _use_fonts(figure)
    with rc_context({"svg.hashsalt": "uiat"}):
        for path in paths:
            kind = path.suffix.removeprefix(".")
            with atomic(path) as temporary:
                figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _use_fonts(figure: "Figure") -> None:
    """Add fallback fonts to each text for letters that its font lacks; escape letters that no installed font has."""
    from matplotlib.font_manager import findfont, get_font
    from matplotlib.text import Text

    font_of: dict[str, str] = {}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        base = get_font(findfont(text.get_fontproperties()))
        missing = sorted({letter for letter in text.get_text() if letter != "\n" and not _has(base, letter)})
        if not missing:
            continue
        font_of |= {letter: _font_with(letter) for letter in missing if letter not in font_of}
        names = dict.fromkeys(font_of[letter] for letter in missing if font_of[letter])
        text.set_fontfamily([base.family_name, *names])
        escapes = {ord(letter): _escaped(letter) for letter in missing if not font_of[letter]}
        text.set_text(text.get_text().translate(escapes))


def _has(font: "FT2Font", letter: str) -> bool:
    return font.get_char_index(ord(letter)) != 0


def _font_with(letter: str) -> str:
    """Return the name of an installed font that has a letter; empty if there is none."""
    from matplotlib.font_manager import fontManager, get_font

    upright = [entry for entry in fontManager.ttflist if (entry.style, entry.weight) == ("normal", 400)]
    for entry in sorted(upright, key=lambda entry: entry.name):
        with suppress(OSError, RuntimeError):  # a missing or damaged file
            font = get_font(entry.fname)
            # The font of last resort draws a box for every letter; a bitmap font cannot be scaled.
            if font.scalable and "last resort" not in entry.name.lower() and _has(font, letter):
                return entry.name
    return ""


def _escaped(letter: str) -> str:
    """Escape a letter, as in \\u732b; marks that only modify the letter before them are dropped."""
    return "" if unicodedata.category(letter) in ("Cf", "Mn") else letter.encode("unicode_escape").decode()


def in_levels(values: tuple[float, ...]) -> bool:
    """Whether the values are pixel levels k/255, and not just decimals (0.2 is 51/255)."""
    whole = all(abs(v * 255 - round(v * 255)) < 1e-6 for v in values)
    return whole and any(abs(v - round(v, 4)) > 1e-9 for v in values)


def show_radius(value: float, levels: bool) -> str:
    """Format a radius as k/255 or as a short decimal, with a true minus sign."""
    text = f"{round(value * 255)}/255" if levels and abs(value) > 1e-9 else f"{round(value, 6):g}"
    return text.replace("-", "−")


def ticks(grid: tuple[float, ...]) -> list[float]:
    """Return every k-th value of the grid, about `MOST_TICKS` of them, with 0 among them if the grid has it."""
    spacing = -(-len(grid) // MOST_TICKS)
    zero = next((k for k, v in enumerate(grid) if v == 0), 0)
    return [v for k, v in enumerate(grid) if (k - zero) % spacing == 0]


def radius_axis(axes: "Axes", grid: tuple[float, ...]) -> None:
    """Label the x axis of ε, and mark natural images where the grid passes 0."""
    chosen, levels = ticks(grid), in_levels(grid)
    axes.set_xticks(chosen, [show_radius(v, levels) for v in chosen])
    side = " (negative: inverse perturbation)" if grid[0] < 0 else ""
    axes.set_xlabel(f"ε{side}")
    if grid[0] <= 0 <= grid[-1]:
        axes.axvline(0, color=GREEN, linewidth=1.2, linestyle=":", zorder=1, label="natural images")
    add_grid(axes)


def add_grid(axes: "Axes") -> None:
    """Draw a light grid, and no frame above and on the right."""
    axes.grid(alpha=0.25, linewidth=0.6)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
