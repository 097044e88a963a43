"""Characters in figures: an installed font that has them, or an escape, never an empty box."""

from pathlib import Path

import pytest
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text

from uiat.report.figure_style import new_figure, save_figure


def drawn(words: str, tmp_path: Path) -> Text:
    """Save a figure with this text, where warnings are errors, and return the text object that was drawn."""
    figure = new_figure(2, 1)
    text = figure.text(0, 0, words)
    save_figure(figure, tmp_path / "x.png", tmp_path / "x.svg")
    return text


@pytest.mark.parametrize("words", ["cat", "γάτα", "Katze\nKätzchen", "a − b, ε'"])
def test_letters_of_the_usual_font_stay(words: str, tmp_path: Path) -> None:
    text = drawn(words, tmp_path)
    assert text.get_text() == words
    assert text.get_fontfamily() == FontProperties().get_family()


def test_an_installed_font_is_used(tmp_path: Path) -> None:
    letter = "Ⓐ"  # in STIX, which comes with matplotlib, and not in its usual font
    assert get_font(findfont(FontProperties())).get_char_index(ord(letter)) == 0
    text = drawn(f"class {letter}", tmp_path)
    assert text.get_text() == f"class {letter}"
    family = text.get_fontfamily()
    assert get_font(findfont(FontProperties(family=family[1]))).get_char_index(ord(letter)) != 0


@pytest.mark.parametrize(("letter", "shown"), [("\U000fffff", r"\U000fffff"), ("\t", r"\t"), ("\ue0fff\ufe0f", None)])
def test_a_letter_that_no_font_has_is_escaped(letter: str, shown: str | None, tmp_path: Path) -> None:
    text = drawn(f"a {letter} b", tmp_path)
    if shown is not None:
        assert text.get_text() == f"a {shown} b"
