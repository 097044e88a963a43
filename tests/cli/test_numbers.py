"""Numbers as people write them."""

import pytest

from uiat.cli.options import parse_number
from uiat.fields import show_number


@pytest.mark.parametrize(
    ("text", "value"),
    [("8/255", 8 / 255), ("0.03", 0.03), ("1e-3", 1e-3), ("-1/2", -0.5), ("7/2", 3.5), ("1.5/3", 0.5), ("3", 3.0)],
)
def test_parse(text: str, value: float) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize("text", ["", "x", "8/", "/255", "8/0", "1/2/3", "8 of 255"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number; write it as 0\.03 or 8/255"):
        parse_number(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(8 / 255, "8/255"), (0.5, "0.5"), (0.2, "0.2"), (3.5, "3.5"), (0.0, "0.0"), (-4 / 255, "-4/255")],
)
def test_show(value: float, text: str) -> None:
    assert show_number(value) == text
    assert parse_number(text) == value
