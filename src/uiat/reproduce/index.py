"""index.md: everything that is in the folder, on one page."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch

from uiat.reproduce.cell import Cell, merge
from uiat.reproduce.commits import commits
from uiat.reproduce.output import write_text
from uiat.reproduce.races import races_of


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
