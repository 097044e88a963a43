"""Escaping of untrusted text (names of classes, runs, files and settings) for display."""

import html
import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, bidirectional overrides, and surrogates."""
_SYNTAX = re.compile(r"[\\`*|\[\]#~@]|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
"""Characters of links, code and table cells in Markdown; URLs are links on GitHub and on the Hub."""
_NUMBER = re.compile(r"[-+]?(\d[\d.]*(e[-+]?\d+)?(/\d+)?|inf)", re.IGNORECASE)


def printable(text: str) -> str:
    r"""Return text with control characters escaped, so that a name cannot control a terminal: ESC becomes \x1b."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    r"""Return text with control characters, newlines and tabs escaped."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def markdown(text: str) -> str:
    """Return text that Markdown shows literally, on one line, without links, HTML, code or table cells."""
    return html.escape(_SYNTAX.sub(r"\\\g<0>", one_line(text)), quote=False)


def code_span(text: str) -> str:
    """Return text as a code span in Markdown, with a longer fence if it contains backticks."""
    text = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if "`" in text or not text.strip() else ""
    return f"{fence}{space}{text}{space}{fence}"


def csv_cell(value: object) -> object:
    """Return a cell that a spreadsheet does not interpret as a formula: such text is prefixed with an apostrophe."""
    if not isinstance(value, str):
        return value
    formula = value.startswith(("=", "+", "-", "@", "\t", "\r")) and not _NUMBER.fullmatch(value)
    return f"'{printable(value)}" if formula else printable(value)
