"""A network's source, with the data's facts written into it and the checks of a person's input left out.

The text is edited in place, guided by its syntax tree, so that comments, docstrings and layout stay as they are.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

DATA = "DataSpec"
"""The type of the parameters that are replaced by constants."""
CHECKS = ("UserError", "unknown")
"""What `raise`s of checks call: a network that was trained has passed them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(NamedTuple):
    """Bytes [start, end) of the text, and what takes their place."""

    start: int
    end: int
    text: bytes


def constant(attribute: str) -> str:
    """Name the constant that takes the place of `data.attribute`."""
    return attribute.upper()


def rewrite(source: str) -> str:
    """Return the source with `data.num_classes` as `NUM_CLASSES` and so on, and without the parameters for that.

    A function that does something else with its DataSpec stays as it is.
    """
    text = _Text(source)
    return text.apply([edit for node in ast.walk(ast.parse(source)) for edit in _edits(node, text)])


def _edits(node: ast.AST, text: "_Text") -> Iterator[Edit]:
    if isinstance(node, ast.If) and _is_check(node):
        yield text.lines(node)
    if isinstance(node, Function):
        for parameter in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            if isinstance(parameter.annotation, ast.Name) and parameter.annotation.id == DATA:
                uses = _uses(node, parameter.arg, text)
                if uses is not None:
                    yield from [text.argument(parameter), *uses]


def _uses(function: Function, name: str, text: "_Text") -> list[Edit] | None:
    """Replace every use of a function's DataSpec: what is read of it, and that it is handed on; `None` for others."""
    checks = [node for node in ast.walk(function) if isinstance(node, ast.If) and _is_check(node)]
    dropped = {inner for check in checks for inner in ast.walk(check)}
    edits: list[Edit] = []
    handled: set[ast.AST] = set()
    for node in ast.walk(function):  # parents come before their children
        if node in dropped or node in handled:
            continue
        if isinstance(node, ast.Attribute) and _is_name(node.value, name):
            handled.add(node.value)
            edits.append(text.span(node, constant(node.attr)))
        elif isinstance(node, ast.Call):
            given = [argument for argument in node.args if _is_name(argument, name)]
            named = [keyword for keyword in node.keywords if _is_name(keyword.value, name)]
            handled |= {*given, *(keyword.value for keyword in named)}
            edits += [text.argument(argument) for argument in given] + [text.argument(keyword) for keyword in named]
        elif _is_name(node, name):
            return None
    return edits


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_check(node: ast.If) -> bool:
    """Whether this is `if …: raise UserError(…)` and nothing else."""
    if node.orelse or len(node.body) != 1 or not isinstance(node.body[0], ast.Raise):
        return False
    raised = node.body[0].exc
    return isinstance(raised, ast.Call) and isinstance(raised.func, ast.Name) and raised.func.id in CHECKS


class _Text:
    """A source as bytes, since the columns of a syntax tree count bytes."""

    def __init__(self, source: str) -> None:
        self.bytes = source.encode()
        self._starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr, text: str) -> Edit:
        """Replace a node."""
        return Edit(*self._range(node), text.encode())

    def lines(self, node: ast.stmt) -> Edit:
        """Remove a statement with its lines."""
        assert node.end_lineno is not None
        return Edit(self._starts[node.lineno - 1], self._starts[node.end_lineno], b"")

    def argument(self, node: ast.expr | ast.arg | ast.keyword) -> Edit:
        """Remove one of several in parentheses, with a comma."""
        start, end = self._range(node)
        if before := re.search(rb",\s*$", self.bytes[:start]):
            return Edit(before.start(), end, b"")
        after = re.match(rb"\s*,\s*", self.bytes[end:])
        return Edit(start, end + (after.end() if after else 0), b"")

    def apply(self, edits: list[Edit]) -> str:
        """Return the edited text; an edit within another one is part of it."""
        out, at = b"", 0
        for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
            if edit.start < at:
                continue
            out += self.bytes[at : edit.start] + edit.text
            at = edit.end
        return (out + self.bytes[at:]).decode()

    def _range(self, node: ast.expr | ast.arg | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset
