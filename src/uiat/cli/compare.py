"""`uiat compare RUN…`: runs side by side, sorted by robust accuracy."""

import os
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro
from rich import box
from rich.markup import escape
from rich.table import Table

from uiat.cli.options import REGISTRY, suggest
from uiat.errors import UserError
from uiat.progress import PipeSafeConsole
from uiat.report.page.comparison import HEADINGS, RunComparison, cells, compare_runs, notes, to_csv, to_markdown
from uiat.report.page.runs import read_runs

MOST_COLUMNS = 5
"""Runs that the table of differing settings shows side by side; more are listed one below the other."""
WIDTH = 100
"""Columns that the whole table needs; a narrower terminal gets fewer columns of it."""


@dataclass(frozen=True)
class Compare:
    """Compare runs: accuracies with 95 % intervals, a paired test against the best, cost, and differing settings."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run folders, or folders that `uiat reproduce` wrote."""
    attack: str | None = None
    """The attack to sort by; else the strongest one that most runs were measured with."""
    weights: Literal["best", "last"] | None = None
    """Compare accuracies of the best epoch's weights, or of the last epoch's; else the best, if any was measured."""
    csv: bool = False
    """Print CSV with every digit."""
    markdown: bool = False
    """Print Markdown."""


def main(args: list[str]) -> int:
    """Run the command."""
    with REGISTRY:
        options = tyro.cli(Compare, args=args, prog="uiat compare", description=Compare.__doc__)
    if not options.runs:
        raise UserError("uiat compare needs run folders: uiat compare RUN RUN.")
    if options.csv and options.markdown:
        raise UserError("--csv and --markdown cannot be given together: choose one.")
    comparison = compare_runs(read_runs(options.runs), options.attack, options.weights)
    if options.csv or options.markdown:
        print(to_csv(comparison) if options.csv else to_markdown(comparison), end="")
        return 0
    _show(comparison)
    suggest("done; next:", "uiat", "report", *options.runs)
    return 0


def _show(comparison: RunComparison) -> None:
    console = PipeSafeConsole(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    table = _table(f"robust: {comparison.title}")
    # The method is among the settings that differ, which are shown below.
    left_out = ("method",) if console.width >= WIDTH else ("method", "minus best")
    shown = [k for k, heading in enumerate(HEADINGS) if heading not in left_out]
    for k in shown:
        table.add_column(HEADINGS[k], justify="right" if k else "left", no_wrap=k > 0, overflow="fold")
    for row in comparison.rows:
        texts = cells(row)
        table.add_row(*(escape(texts[k]) for k in shown))
    table.caption = "[…]: 95 % intervals; minus best: on the same images, in points; p: McNemar"
    console.print(table)
    if comparison.differences:
        _show_differences(console, comparison)
    for note in notes(comparison):
        console.print(f"note: {note}", markup=False, soft_wrap=True)


def _show_differences(console: PipeSafeConsole, comparison: RunComparison) -> None:
    names = [row.run.name for row in comparison.rows]
    if len(names) > MOST_COLUMNS:
        for k, name in enumerate(names):
            values = [f"{key} {value[k]}" for key, value in comparison.differences.items()]
            console.print(f"{name}: {', '.join(values)}", markup=False, soft_wrap=True)
        return
    table = _table("settings that differ")
    for heading in ("setting", *names):
        table.add_column(escape(heading), overflow="fold")
    for key, values in comparison.differences.items():
        table.add_row(escape(key), *map(escape, values))
    console.print(table)


def _table(title: str) -> Table:
    return Table(title=escape(title), box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), title_justify="left")
