"""index.md: everything that is in the folder, on one page, with the commits of the code that made it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from uiat.reproduce.cell import Cell, Store, merge
from uiat.reproduce.output import write_text
from uiat.reproduce.races import races_of


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


class Listed(Protocol):
    """A table or a figure."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def title(self) -> str:
        """What it shows."""

    def cells(self, seeds: int) -> Iterator[Cell]:
        """Return the runs it needs."""


def write_index(experiments: Sequence[Listed], out: Path, seeds: int) -> Path:
    """Write a list of the pages that are there, with links to all of their files and the commits of their runs."""
    lines = [f"# Tables and figures in {out.name}", ""]
    for experiment in experiments:
        files = sorted(path.name for path in out.glob(f"{experiment.name}.*"))
        if files:
            links = ", ".join(f"[{name.rpartition('.')[2]}]({name})" for name in files)
            made_by = ", ".join(commits(merge(experiment.cells(seeds)), out))
            lines.append(
                f"- {experiment.name}, {experiment.title}: {links}" + (f"; runs by {made_by}" if made_by else "")
            )
    if (out / "claims.md").exists():
        lines.append("- claims, what the runs show of the paper's claims: [md](claims.md), [json](claims.json)")
    for race in races_of(experiments, out, torch.device("cpu")):
        if (known := race.timing.known(out)) is not None:
            link = f"[json]({known.relative_to(out).as_posix()})"
            lines.append(f"- {race.what}, {race.measured(known)}: {link}")
    path = out / "index.md"
    write_text(path, "\n".join([*lines, ""]))
    return path
