"""Escaping of text that others wrote (names of classes, runs, files and settings) where it is shown."""

import html
import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, reversals of the reading direction, and bytes that are no text."""
_SYNTAX = re.compile(r"[\\`*|\[\]#~@]|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
"""What makes links, code and cells in Markdown; addresses are links on GitHub and on the Hub."""
_NUMBER = re.compile(r"[-+]?(\d[\d.]*(e[-+]?\d+)?(/\d+)?|inf)", re.IGNORECASE)


def printable(text: str) -> str:
    r"""Return text with control characters escaped, so that a name cannot steer a terminal: ESC is shown as \x1b."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    r"""Return text as `printable` does, with newlines and tabs escaped, too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def markdown(text: str) -> str:
    """Return text that Markdown shows literally, on one line: no link, HTML, code, or further cell of a table."""
    return html.escape(_SYNTAX.sub(r"\\\g<0>", one_line(text)), quote=False)


def code_span(text: str) -> str:
    """Return text as code in Markdown, whatever backticks it has."""
    text = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if "`" in text or not text.strip() else ""
    return f"{fence}{space}{text}{space}{fence}"


def csv_cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: text that begins like one follows an apostrophe."""
    if not isinstance(value, str):
        return value
    formula = value.startswith(("=", "+", "-", "@", "\t", "\r")) and not _NUMBER.fullmatch(value)
    return f"'{printable(value)}" if formula else printable(value)
