"""A network's source, with the data's facts written into it and the checks of a person's input left out.

The text is edited in place, guided by its syntax tree, so that comments, docstrings and layout stay as they are.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from uiat.errors import UserError

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


def rewrite(source: str, where: str) -> str:
    """Return the source with `data.num_classes` as `NUM_CLASSES` and so on, without parameters called for that.

    `where` names the source in the error that is raised when it does something else with its DataSpec.
    """
    text = _Text(source)
    edits = [edit for node in ast.walk(ast.parse(source)) for edit in _edits(node, text, where)]
    return text.apply(edits)


def _edits(node: ast.AST, text: "_Text", where: str) -> Iterator[Edit]:
    if isinstance(node, ast.If) and _is_check(node):
        yield text.lines(node)
    if isinstance(node, Function):
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for parameter in parameters:
            if isinstance(parameter.annotation, ast.Name) and parameter.annotation.id == DATA:
                yield text.argument(parameter)
                yield from _uses(node, parameter.arg, text, where)


def _uses(function: Function, name: str, text: "_Text", where: str) -> Iterator[Edit]:
    """Replace every use of a function's DataSpec: what is read of it, and that it is handed on."""
    dropped = [check for check in ast.walk(function) if isinstance(check, ast.If) and _is_check(check)]
    skip = {inner for check in dropped for inner in ast.walk(check)}
    handled: set[ast.AST] = set()
    for node in ast.walk(function):
        if node in skip:
            continue
        if isinstance(node, ast.Attribute) and _is_name(node.value, name):
            handled.add(node.value)
            yield text.span(node, constant(node.attr))
        elif isinstance(node, ast.Call):
            for argument in node.args:
                if _is_name(argument, name):
                    handled.add(argument)
                    yield text.argument(argument)
            for keyword in node.keywords:
                if _is_name(keyword.value, name):
                    handled.add(keyword.value)
                    yield text.argument(keyword)
        elif _is_name(node, name) and node not in handled:  # parents come before their children
            raise UserError(
                f"{where} keeps its {DATA} in {function.name!r}: read numbers of it, or hand it on, for an export."
            )


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
