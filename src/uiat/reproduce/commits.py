"""Which commits of the code made what is in a folder: numbers of different code in one table should be no surprise."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from uiat.reproduce.cell import Cell
from uiat.reproduce.store import Store


def commits(cells: Iterable[Cell], out: Path) -> Counter[str]:
    """Count the commits that made the finished runs and measurements of some cells."""
    found: Counter[str] = Counter()
    for store in (Store(cell, out) for cell in cells):
        if store.trained:
            measured = [facts for measure in store.cell.measures if (facts := store.read(measure)) is not None]
            found.update({_commit(facts["environment"]) for facts in (store.card, *measured) if "environment" in facts})
    return found


def _commit(environment: dict[str, Any]) -> str:
    """Return the short commit; outside a source tree, the version that is installed."""
    commit = environment.get("git_commit")
    return str(commit)[:10] if commit else f"version {environment.get('versions', {}).get('uiat', 'unknown')}"


def mixed(cells: Iterable[Cell], out: Path) -> str:
    """Return a line that warns of several commits; empty where there is one, or none."""
    found = commits(cells, out)
    if len(found) < 2:
        return ""
    counts = ", ".join(f"{commit} ({count})" for commit, count in found.most_common())
    return f"mixed: the finished runs in {out} were made, or measured, by different commits of the code: {counts}"
