"""`uiat compare RUN…`: runs side by side, sorted by robust accuracy."""

import os
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro
from rich import box
from rich.table import Table

from uiat.cli.options import parse_options, suggest
from uiat.errors import UserError
from uiat.progress import PipeSafeConsole
from uiat.report.comparison_table import comparison_markdown, group_differences, group_notes, group_seeds
from uiat.report.page.comparison import HEADINGS, RunComparison, compare_runs, comparison_csv
from uiat.report.page.runs import read_runs

MOST_COLUMNS = 5
"""Largest number of runs that the table of differing settings shows side by side; more get a line each."""
TABLE_WIDTH = 100
"""Characters that the whole table needs; a narrower terminal gets fewer of its columns."""
CAPTION = "[…]: 95 % intervals; ±: standard deviation; minus best: on the same images, in points; p: McNemar, or paired"

EXAMPLES = ("uiat compare runs/sat runs/uiat", "uiat compare runs/*-s? --weights last --markdown")


@dataclass(frozen=True)
class Compare:
    """Compare runs: accuracies with 95 % intervals, a paired test against the best, cost, and differing settings.

    Runs that differ only in their seed are one row, with mean and standard deviation.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run folders, or folders that `uiat reproduce` wrote."""
    attack: str | None = None
    """The attack to sort by; by default the strongest one with which most runs were evaluated."""
    weights: Literal["best", "last"] | None = None
    """Compare the weights of the best epoch or of the last; by default the best, if any were evaluated."""
    csv: bool = False
    """Print CSV with every digit, a line for each run."""
    markdown: bool = False
    """Print Markdown."""


def main(args: list[str]) -> int:
    """Run the command."""
    options = parse_options(Compare, args, "uiat compare RUN…", EXAMPLES)
    if not options.runs:
        raise UserError("uiat compare needs run folders: uiat compare RUN RUN.")
    if options.csv and options.markdown:
        raise UserError("--csv and --markdown exclude each other: give one of them.")
    comparison = compare_runs(read_runs(options.runs), options.attack, options.weights)
    if options.csv or options.markdown:
        print(comparison_csv(comparison) if options.csv else comparison_markdown(comparison), end="")
        return 0
    _print_comparison(comparison)
    suggest("done; next:", "uiat", "report", *options.runs)
    return 0


def _print_comparison(comparison: RunComparison) -> None:
    console = PipeSafeConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = TABLE_WIDTH
    groups = group_seeds(comparison)
    table = _table(f"robust: {comparison.title}")
    # The method is among the settings that differ, which are shown below.
    omitted = ("method",) if console.width >= TABLE_WIDTH else ("method", "minus best")
    shown = [k for k, heading in enumerate(HEADINGS) if heading not in omitted]
    for k in shown:
        table.add_column(HEADINGS[k], justify="right" if k else "left", no_wrap=k > 0, overflow="fold")
    for texts in (group.cells() for group in groups):
        table.add_row(*(texts[k] for k in shown))
    table.caption = CAPTION
    console.print(table)
    if differing := group_differences(groups):
        _print_differences(console, [group.name for group in groups], differing)
    for note in group_notes(groups):
        console.print_line(f"note: {note}")


def _print_differences(console: PipeSafeConsole, names: list[str], differing: dict[str, list[str]]) -> None:
    if len(names) > MOST_COLUMNS:
        for k, name in enumerate(names):
            values = [f"{key} {value[k]}" for key, value in differing.items()]
            console.print_line(f"{name}: {', '.join(values)}")
        return
    table = _table("settings that differ")
    for heading in ("setting", *names):
        table.add_column(heading, overflow="fold")
    for key, values in differing.items():
        table.add_row(key, *values)
    console.print(table)


def _table(title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.title_justify = table.caption_justify = "left"
    return table
