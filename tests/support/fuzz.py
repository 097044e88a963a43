"""Damaged copies of a run: one value of one of its files replaced, or bytes cut or flipped, drawn from a seed."""

import json
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import torch

from uiat.io import write_sealed
from uiat.runs.run_folder import RunFolder

DEEP: Any = None
for _ in range(300):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 10**30, -(10**30), 10**400, 0.5, -0.5, 1e308, -1e308),
    *(float("nan"), float("inf"), "", "x", "1", "x" * 10_000, "\x00\x1b[31m\n", "\ud800", "../../x", "a:b"),
    *([], {}, [1], ["x"], [None] * 100, {"kind": "PGD"}, {"kind": "UIAT"}, {"kind": "ResNet"}, {"kind": 3}, {"x": 1}),
    DEEP,
)
"""What takes the place of a value: other types, numbers out of range, text that is hard to print, nesting."""
FILES = ("config.json", "result.json", "data.json", "metrics.jsonl", "measures/a.json", "curves/curves.json")
CHECKPOINTS = ("checkpoint.pt", "checkpoint.previous.pt")


def damage(run: RunFolder, name: str, random: Random) -> str:
    """Damage one file of a run; return what was done, in words."""
    path = run.path / name
    if name in CHECKPOINTS:
        content = torch.load(path, weights_only=True)
        words = mutate(content, random)
        write_sealed(path, content)
        return f"{name}: {words}"
    if random.random() < 0.1:
        return f"{name}: {damage_bytes(path, random)}"
    if name.endswith(".jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        words = mutate(lines, random)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return f"{name}: {words}"
    holder = [json.loads(path.read_text())]
    words = mutate(holder, random)
    path.write_text(json.dumps(holder[0] if holder else None))
    return f"{name}: {words}"


def mutate(tree: Any, random: Random) -> str:
    """Replace, remove, wrap or add one value at a random place of a tree of dictionaries and lists."""
    container, key = random.choice(list(places(tree)))
    place = f"{type(container).__name__}[{str(key)[:40]!r}]"
    match random.choice(("replace", "replace", "replace", "remove", "wrap", "text", "add")):
        case "remove":
            del container[key]
            return f"{place} removed"
        case "wrap":
            container[key] = random.choice(([container[key]], {"x": container[key]}))
            return f"{place} wrapped"
        case "text":
            container[key] = str(container[key])
            return f"{place} as text"
        case "add" if isinstance(container, dict):
            container["evil"] = random.choice(VALUES)
            return f"{place}: a key added"
        case _:
            value = random.choice(VALUES)
            container[key] = deepcopy(value)
            return f"{place} is now {str(value)[:60]!r}"


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key) of a tree."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from places(tree[key])


def damage_bytes(path: Path, random: Random) -> str:
    """Cut a file, or change one of its bytes."""
    content, at = bytearray(path.read_bytes()), random.randrange(path.stat().st_size)
    if random.random() < 0.5:
        path.write_bytes(content[:at])
        return f"cut at byte {at}"
    content[at] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return f"a bit of byte {at} flipped"


def everything(folder: Path, without: Path) -> dict[str, bytes]:
    """Return the content of all files of a folder, but for those of one folder in it."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(without))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def copy_of(run: RunFolder, path: Path) -> RunFolder:
    """Return a copy of a run, which replaces an earlier copy."""
    shutil.rmtree(path, ignore_errors=True)
    return RunFolder(shutil.copytree(run.path, path))
