"""Modules import only from layers below their own, from the command line to the core."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
LAYERS = [
    ("__main__",),
    ("cli",),
    ("reproduce",),
    ("export", "bench"),
    ("report",),
    ("engine",),
    ("evaluation",),
    ("runs",),
    ("recipes",),
    ("config_json",),
    ("config",),
    ("data", "methods", "wrap"),
    ("targets",),
    ("attacks",),
    ("objectives",),
    ("models",),
]
"""From top to bottom; parts of one layer do not know each other, and all other modules are below them."""
HEIGHT = {part: len(LAYERS) - place for place, layer in enumerate(LAYERS) for part in layer}


def imports(path: Path) -> Iterator[str]:
    """Return the modules of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "uiat":
            module = str(node.module)
            yield from (f"uiat.{name.name}" for name in node.names) if module == "uiat" else [module]
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "uiat")


def part(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_imports_look_down() -> None:
    upward = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if module == "uiat.__init__":
            continue  # it collects the public names
        for other in imports(path):
            own, theirs = HEIGHT.get(part(module), 0), HEIGHT.get(part(other), 0)
            if part(module) != part(other) and own <= theirs and theirs > 0:
                upward.append(f"{module} -> {other}")
    assert upward == []


def test_every_layer_is_there() -> None:
    there = {path.stem for path in (SOURCE / "uiat").iterdir()}
    assert set(HEIGHT) <= there
