"""index.md: everything that is in the folder, on one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from uiat.reproduce.output import write_text


class Named(Protocol):
    """A table or a figure."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def title(self) -> str:
        """What it shows."""


def write_index(experiments: Sequence[Named], out: Path) -> Path:
    """Write a list of the pages that are there, with links to all of their files."""
    lines = [f"# Tables and figures in {out.name}", ""]
    for experiment in experiments:
        files = sorted(path.name for path in out.glob(f"{experiment.name}.*"))
        if files:
            links = ", ".join(f"[{name.rpartition('.')[2]}]({name})" for name in files)
            lines.append(f"- {experiment.name}, {experiment.title}: {links}")
    if (out / "claims.md").exists():
        lines.append("- claims, what the runs show of the paper's claims: [md](claims.md), [json](claims.json)")
    path = out / "index.md"
    write_text(path, "\n".join([*lines, ""]))
    return path
