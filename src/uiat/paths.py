"""Paths that users type."""

import difflib
import os
from pathlib import Path


def user_path(given: str) -> Path:
    """Return a path with ~ expanded; unlike `Path.expanduser`, an unknown ~name is kept."""
    return Path(os.path.expanduser(given))


def suggest_path(path: Path) -> str:
    """Return "did you mean …?" with the most similar existing neighbour of a missing path, or ""."""
    rest: list[str] = []
    while not os.path.isdir(path.parent) and path != path.parent:
        rest.insert(0, path.name)
        path = path.parent
    try:
        others = [name for name in os.listdir(path.parent) if name != path.name]  # itself is a link to nothing
        close = difflib.get_close_matches(path.name, others, n=1)
    except OSError:
        close = []
    if not close:
        return ""
    neighbour = path.with_name(close[0])
    whole = neighbour.joinpath(*rest)
    return f"did you mean {whole if os.path.exists(whole) else neighbour}?"
