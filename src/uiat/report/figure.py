"""A blank figure, and how every figure is saved."""

import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from uiat.io import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.ft2font import FT2Font

BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
"""Of Okabe and Ito's palette, which colour-blind readers can tell apart; grey for what only guides the eye."""
DPI = 160


def new_figure(width: float, height: float) -> "Figure":
    """Return a figure of so many inches, with a canvas of its own: no window, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: "Figure", *paths: Path) -> None:
    """Write a figure in the format of each path's ending; the same figure gives the same bytes."""
    from matplotlib import rc_context

    _use_fonts(figure)
    with rc_context({"svg.hashsalt": "uiat"}):
        for path in paths:
            kind = path.suffix.removeprefix(".")
            with atomic(path) as temporary:
                figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _use_fonts(figure: "Figure") -> None:
    """Give each text fonts that have its letters; letters that no installed font has are escaped."""
    from matplotlib.font_manager import findfont, get_font
    from matplotlib.text import Text

    found: dict[str, str] = {}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        base = get_font(findfont(text.get_fontproperties()))
        missing = sorted({letter for letter in text.get_text() if letter != "\n" and not _has(base, letter)})
        if not missing:
            continue
        found |= {letter: _font_with(letter) for letter in missing if letter not in found}
        names = dict.fromkeys(found[letter] for letter in missing if found[letter])
        text.set_fontfamily([base.family_name, *names])
        escapes = {ord(letter): _escaped(letter) for letter in missing if not found[letter]}
        text.set_text(text.get_text().translate(escapes))


def _has(font: "FT2Font", letter: str) -> bool:
    return font.get_char_index(ord(letter)) != 0


def _font_with(letter: str) -> str:
    """Return the name of an installed font that has a letter; empty where there is none."""
    from matplotlib.font_manager import fontManager, get_font

    upright = [entry for entry in fontManager.ttflist if (entry.style, entry.weight) == ("normal", 400)]
    for entry in sorted(upright, key=lambda entry: entry.name):
        with suppress(OSError, RuntimeError):  # a file that is gone, or damaged
            font = get_font(entry.fname)
            # The font of last resort has a box for every letter.
            if font.scalable and "last resort" not in entry.name.lower() and _has(font, letter):
                return entry.name
    return ""


def _escaped(letter: str) -> str:
    """Write a letter in plain ones, such as \\u732b; marks that only change the one before them are left out."""
    return "" if unicodedata.category(letter) in ("Cf", "Mn") else letter.encode("unicode_escape").decode()
