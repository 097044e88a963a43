"""A network of one's own, named as `module:callable`: its file goes along as it is."""

import ast
import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from uiat.errors import UserError
from uiat.export.script import assemble, header, show, show_call
from uiat.export.source import Import
from uiat.models import Imported
from uiat.types import DataSpec

NETWORK = "network.py"
"""What the copy is called; the original's name could be that of another file of the export."""


def own_source(config: Imported) -> str:
    """Return the text of the file that defines the network; it must be a module by itself."""
    config.find()
    module = config.target.partition(":")[0]
    try:
        found = importlib.util.find_spec(module)
    except ValueError:  # a module that is no file, such as __main__
        found = None
    if found is None or "." in module or found.submodule_search_locations or not (found.origin or "").endswith(".py"):
        raise UserError(f"{module!r} is not a single file, so {config.target} cannot be exported: put it in one file.")
    path = Path(str(found.origin))
    text = path.read_text(encoding="utf-8")
    for name in imported_names(text):
        if not name or (name != module and _beside(path, name)):
            other = f"{name} beside it" if name else "relatively"
            raise UserError(f"{path} imports {other}, so {config.target} cannot be exported: put it in one file.")
    return text


def imported_names(text: str) -> list[str]:
    """Return the top-level packages that a source imports anywhere; an empty name for a relative import."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("" if node.level else (node.module or "").split(".")[0])
    return sorted(names)


def requirements(text: str) -> list[str]:
    """Return what has to be installed for a source, beside the standard library."""
    return sorted({"torch", "safetensors", *imported_names(text)} - set(sys.stdlib_module_names))


def _beside(path: Path, name: str) -> bool:
    return path.with_name(f"{name}.py").is_file() or (path.parent / name).is_dir()


def own_script(config: Imported, data: DataSpec) -> str:
    """Return the text of a `model.py` that builds the network from the copy of its file."""
    name = config.target.partition(":")[2]
    given = config.arguments(config.find(), data)
    imports: set[Import] = {("network", name)}
    if any(isinstance(value, DataSpec) for value in given.values()):
        imports.add(("types", "SimpleNamespace"))
    build = show_call(name, {key: _show(value) for key, value in given.items()})
    summary = f"The network is {name!r} of {NETWORK} beside this file, a copy of what it was trained from."
    return assemble(header(data, summary), imports, [], build)


def _show(value: Any) -> str:
    """Write an argument; a DataSpec as a plain object with the same numbers, since its class is not taken along."""
    if not isinstance(value, DataSpec):
        return show(value)
    facts = {**asdict(value), "numel": value.numel}
    return f"SimpleNamespace({', '.join(f'{key}={show(fact)}' for key, fact in facts.items())})"
