"""`uiat report RUN… [-o report.html]`: an HTML report on one run or several."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from uiat.cli.options import check_counts, parse_options, suggest
from uiat.cli.output_paths import check_file
from uiat.errors import UserError
from uiat.fields import check_numbers
from uiat.io import write_output
from uiat.progress import print_result
from uiat.report.page.comparison import compare_runs
from uiat.report.page.network_summary import SummaryOptions, chosen_runs, summarize_runs
from uiat.report.page.page import render
from uiat.report.page.runs import Run, read_runs

EXAMPLES = ("uiat report runs/sat runs/uiat -o report.html", "uiat report runs/mine --pictures 0")


@dataclass(frozen=True)
class Report:
    """Write an HTML report on runs: examples at every ε, accuracies, learning curves, settings."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run folders, or folders that `uiat reproduce` wrote."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"])] = "report.html"
    """The file to write."""
    pictures: int = 4
    """Largest number of runs to measure and show pictures of, one of each method first; 0 only reads files."""
    measured: Annotated[SummaryOptions, tyro.conf.arg(name="")] = field(default_factory=SummaryOptions)


def main(args: list[str]) -> int:
    """Run the command."""
    if any(word.partition("=")[0] in ("--mean", "--std") for word in args):
        raise UserError("a run records how its network normalises inputs: omit --mean and --std.")
    options = parse_options(Report, args, "uiat report RUN…", EXAMPLES)
    if not options.runs:
        raise UserError("uiat report needs run folders: uiat report RUN RUN.")
    check_counts(options, pictures=0)
    check_numbers(options.measured, "--")
    check_file(options.out, text=True)
    comparison = compare_runs(read_runs(options.runs))
    runs = [row.run for row in comparison.rows]
    summaries, positions, easier = summarize_runs(chosen_runs(runs, options.pictures), options.measured)
    reason = "" if summaries else _no_pictures(runs, options.pictures)
    page = render(comparison, summaries, positions, easier, options.measured, reason=reason)
    write_output(options.out, page)
    size = len(page.encode()) / 1e6
    print_result(f"written: {options.out} ({size:.1f} MB)")
    suggest("done; next:", "uiat", "export", runs[0].folder.path)
    return 0


def _no_pictures(runs: list[Run], most: int) -> str:
    if not most:
        return "Pictures were omitted (--pictures 0)."
    what = "no epoch has finished yet" if len(runs) == 1 else "no run has any"
    return f"There are no weights to evaluate: {what}."
