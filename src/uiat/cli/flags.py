"""The flags of a command, for its short help and for shell completion.

They are read from the dataclasses that tyro parses: the name of a field, and the docstring below it.
"""

import ast
import inspect
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from uiat.fields import show_number

MAX_WIDTH = 100
"""Maximum width of a help text, in columns."""
TEXT_COLUMN = 32
"""Column in which the descriptions begin."""
HELP, ALL = ("-h", "--help"), "--help-all"


@dataclass(frozen=True)
class Flag:
    """A flag of a command line."""

    name: str
    """Its name, with dashes."""
    text: str
    """Its description."""
    default: Any = None
    metavar: str = ""
    choices: tuple[str, ...] = ()
    """The values it accepts, if they are known."""

    @property
    def names(self) -> list[str]:
        """Its name; for a switch also the name that turns it off."""
        if not isinstance(self.default, bool):
            return [self.name]
        start, dot, last = self.name.removeprefix("--").rpartition(".")
        return [self.name, f"--{start}{dot}no-{last}"]

    def lines(self, width: int) -> list[str]:
        """Return its lines of a help text."""
        head = f"  {', '.join(self.names)} {self.metavar}".rstrip()
        has_default = self.default not in (None, "", ())
        text = f"{self.text} (default: {_format(self.default)})" if has_default else self.text
        column = min(TEXT_COLUMN, width // 2)
        body = textwrap.wrap(text, width - column, break_on_hyphens=False)
        first = [f"{head:<{column}}{body.pop(0)}"] if len(head) < column else [head]
        return [*first, *(" " * column + line for line in body)]


def flags_of(part: Any, prefix: str = "--") -> Iterator[Flag]:
    """Yield the flags of a dataclass of options: an instance, or the class if every field has a default."""
    kind = part if isinstance(part, type) else type(part)
    hints, texts = get_type_hints(kind, include_extras=True), _docstrings(kind)
    for field in fields(kind):
        hint, marks = hints[field.name], list[Any]()
        while get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            marks += more
        if tyro.conf.Positional in marks or tyro.conf.Suppress in marks:
            continue
        value = _default(field) if part is kind else getattr(part, field.name)
        name = prefix + field.name.replace("_", "-")
        if is_dataclass(value):
            unnamed = any(getattr(mark, "name", None) == "" for mark in marks)
            yield from flags_of(value, prefix if unnamed else f"{name}.")
        else:
            yield Flag(name, texts.get(field.name, ""), value, *_values(hint))


def positionals(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each positional argument of a class of options."""
    hints, texts = get_type_hints(kind, include_extras=True), _docstrings(kind)
    for field in fields(kind):
        if tyro.conf.Positional in getattr(hints[field.name], "__metadata__", ()):
            yield field.name.upper(), texts.get(field.name, "")


def _default(field: "Field[Any]") -> Any:
    made = field.default_factory() if field.default_factory is not MISSING else None
    return made if field.default is MISSING else field.default


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """Return the docstring of each field of a dataclass and of its bases."""
    texts = {}
    for base in filter(is_dataclass, reversed(kind.__mro__)):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, SyntaxError):  # no source, as in an interactive session
            continue
        for field, text in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                texts[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return texts


def _values(hint: Any) -> tuple[str, tuple[str, ...]]:
    """Return the placeholder of a flag's value in a help text, and the values it may take if they are known."""
    parts = [part for part in get_args(hint) if part not in (NoneType, Ellipsis)]
    if hint is bool:
        return "", ()
    if get_origin(hint) is Literal:
        return f"{{{','.join(map(str, get_args(hint)))}}}", tuple(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        inner = [_values(part)[0] for part in parts]
        return f"{inner[0]} …" if Ellipsis in get_args(hint) else " ".join(inner), _values(parts[0])[1]
    if parts:  # one of several types
        choices = [_values(part) for part in parts]
        return "|".join(shown for shown, _ in choices), tuple(word for _, words in choices for word in words)
    return {int: "INT", float: "NUMBER"}.get(hint, "STR"), ()


def _format(value: Any) -> str:
    if isinstance(value, tuple | list):
        return " ".join(map(_format, value))
    return show_number(value) if isinstance(value, float) else str(value)


def brief(usage: str, about: str, chosen: Iterable[Flag], examples: Iterable[str]) -> str:
    """Return a help text of one screen: usage, description, the most common flags, examples."""
    width = min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 0)).columns)
    lines = [f"usage: {usage}", "", *textwrap.wrap(about, width), ""]
    for flag in chosen:
        lines += flag.lines(width)
    return "\n".join([*lines, f"  {ALL:<{TEXT_COLUMN - 2}}Show every flag.", "", *(f"  {line}" for line in examples)])


def wants_brief(args: Iterable[str]) -> bool:
    """Whether the arguments ask for the short help."""
    return any(word in HELP for word in args)
