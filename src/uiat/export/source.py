"""The source of a network with all that it needs, as one file: taken from the modules that define it, never a copy."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from uiat.errors import UserError
from uiat.export.rewrite import DATA, rewrite

PACKAGE = "uiat"
ALLOWED = {"torch", "safetensors", *sys.stdlib_module_names}
"""What the one file may import."""

Import = tuple[str, str]
"""(module, name) of `from module import name`; the name is empty for `import module`."""


@dataclass(frozen=True)
class Definition:
    """A top-level definition: its text, with the comments and the docstring that belong to it, and what it reads."""

    text: str
    reads: frozenset[str]
    compact: bool
    """Whether it is a constant, which stands closer to its neighbours than a function or a class."""


@dataclass
class Source:
    """One module: what it defines, and where else its names come from."""

    name: str
    summary: str
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, Import] = field(default_factory=dict)


@dataclass
class Bundle:
    """The definitions that a class needs, in an order in which they can be run, and what they import."""

    summary: str
    """What the module of the class says of itself."""
    definitions: list[Definition]
    imports: set[Import]

    @property
    def reads(self) -> set[str]:
        """Every name that is read anywhere."""
        return {name for definition in self.definitions for name in definition.reads}


def bundle(cls: type) -> Bundle:
    """Collect what a class needs: its module's definitions, and those of the package's modules it imports from."""
    sources: dict[str, Source] = {}
    needed: dict[str, str] = {}
    imports: set[Import] = set()
    queue = [(cls.__module__, cls.__name__)]
    while queue:
        module, name = queue.pop()
        source = sources[module] if module in sources else sources.setdefault(module, read_source(module))
        if name in source.definitions:
            if needed.get(name, module) != module:
                raise UserError(f"{module} and {needed[name]} both define {name!r}: rename one for an export.")
            if DATA in source.definitions[name].reads:
                raise UserError(f"{module}.{name} keeps its {DATA}: read numbers of it, or hand it on, for an export.")
            if name not in needed:
                needed[name] = module
                queue += [(module, read) for read in sorted(source.definitions[name].reads)]
        elif name in source.imports:
            origin, original = source.imports[name]
            if origin.split(".")[0] == PACKAGE:
                queue.append((origin, original))
            else:
                _allow(origin, source)
                imports.add((origin, original))
    ordered = [
        definition
        for module in _order(cls.__module__, sources)
        for name, definition in sources[module].definitions.items()
        if needed.get(name) == module
    ]
    return Bundle(sources[cls.__module__].summary, ordered, imports)


def read_source(module: str) -> Source:
    """Read a module's file, with its DataSpec written out (see `rewrite`)."""
    try:
        found = sys.modules.get(module) or import_module(module)
        file = inspect.getsourcefile(found)
        text = Path(file or "").read_text(encoding="utf-8")
    except (OSError, TypeError, ImportError):
        raise UserError(f"the source of {module} was not found, so its network cannot be exported.") from None
    text = rewrite(text)
    tree = ast.parse(text)
    source = Source(module, (ast.get_docstring(tree) or "").strip())
    source.imports.update(_imports(tree))
    source.definitions.update(_definitions(tree, text.splitlines()))
    return source


def _allow(module: str, source: Source) -> None:
    if re.split("[. ]", module)[0] not in ALLOWED:
        raise UserError(f"{source.name} imports {module}, so its network cannot be exported as one file of its own.")


def _imports(tree: ast.Module) -> Iterator[tuple[str, Import]]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.split(".")[0], (_as(alias), "")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from ((alias.asname or alias.name, (origin, _as(alias))) for alias in node.names)


def _as(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _definitions(tree: ast.Module, lines: list[str]) -> Iterator[tuple[str, Definition]]:
    for k, node in enumerate(tree.body):
        name = _name(node)
        if name is None:
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
        while first and lines[first - 1].startswith("#"):
            first -= 1
        following = tree.body[k + 1] if k + 1 < len(tree.body) else None
        last = following if _is_docstring(following) and isinstance(node, ast.Assign | ast.AnnAssign) else node
        assert last is not None
        reads = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        compact = isinstance(node, ast.Assign | ast.AnnAssign)
        yield name, Definition("\n".join(lines[first : last.end_lineno]), frozenset(reads), compact)


def _name(node: ast.stmt) -> str | None:
    """Return the name that a statement defines, if it defines one."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None


def _is_docstring(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _order(root: str, sources: dict[str, Source]) -> list[str]:
    """Put every module after those it imports from."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(module: str) -> None:
        seen.add(module)
        for origin in sorted({origin for origin, _ in sources[module].imports.values()}):
            if origin in sources and origin not in seen:
                visit(origin)
        order.append(module)

    visit(root)
    return order
